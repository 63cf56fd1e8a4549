#!/bin/sh
# Attention on an H200: forward and backward TFLOP/s of the Triton kernels beside every backend that torch has
# there, and beside the padded kernel that most Triton attention is (triton_padded).
#
#   reports/measure_h200.sh [FOLDER]            on the GPU; one Run for each seq_len
#   DRY_RUN=1 reports/measure_h200.sh [FOLDER]  anywhere: Triton's interpreter, tiny sizes; the times mean nothing
#
# LENGTHS, HEAD_DIMS and KERNELS choose a part of it; a length whose Run is complete in FOLDER is left as it is.
# Sizes follow the FlashAttention papers' sweeps: batch * seq_len = 16384 tokens, here with 16 heads of each head_dim.
# Aims: at least torch's flash backend at every head_dim; 1.15 times it at 72, 80 and 112; 0.8 times the fastest
# backend at 64 and 128. `andrea-bench show RUN` prints each Run again; commit what it printed beside this script.
# sdpa_math holds all scores: at length 16384 it may be out of memory, which is an answer. flex is compiled by torch for
# each Problem: where time is short, leave it out by KERNELS.
set -eu
folder=${1:-results/h200}
bench=${ANDREA_BENCH:-andrea-bench}
kernels=${KERNELS:-sdpa_math,sdpa_flash,sdpa_efficient,sdpa_cudnn,flex,triton_exact,triton_padded,triton_scalar_loads}

if [ "${DRY_RUN:-0}" = 1 ]; then
    export TRITON_INTERPRET=1
    tokens=16 lengths=16 head_dims=72 heads=1 dtype=float16
    options="--device cpu --min-samples 2 --time-limit 0.1"
    kernels=sdpa_math,triton_exact,triton_padded
else
    tokens=16384 heads=16 dtype=bfloat16
    lengths=${LENGTHS:-512 1024 2048 4096 8192 16384}
    head_dims=${HEAD_DIMS:-32,40,48,64,72,80,96,104,112,120,128,160,192,224,256}
    options="--device cuda --time-limit 0.3"
fi

# sweep LENGTH HEAD_DIMS FOLDER KERNELS [OPTION...]
sweep() {
    length=$1 dims=$2 out=$3 names=$4
    shift 4
    "$bench" sweep attention --kernel "$names" "$@" --out "$out" \
        -a "n_head=$heads" -a "head_dim=$dims" -a "seq_len=$length" -a "batch=$((tokens / length))" \
        -a "dtype=$dtype" -a causal=true,false -a direction=forward,backward
}

if [ "${DRY_RUN:-0}" != 1 ]; then
    # Compile first, a process for each head_dim side by side: Triton keeps the binaries, which serve every length.
    warm=$(mktemp -d)
    for head_dim in $(echo "$head_dims" | tr , ' '); do
        sweep 512 "$head_dim" "$warm/$head_dim" triton_exact,triton_padded,triton_scalar_loads \
            --device cuda --min-samples 1 --time-limit 0.01 >/dev/null 2>&1 &
    done
    wait
    rm -r "$warm"
fi

for seq_len in $lengths; do
    out=$folder/seq_len_$seq_len
    ! grep -q '"complete": *true' "$out/run.json" 2>/dev/null || continue
    code=0
    # shellcheck disable=SC2086  # options are several words
    sweep "$seq_len" "$head_dims" "$out" "$kernels" $options || code=$?
    # 4: a cell could not run (a backend that refuses a head_dim is an answer, and exits 0). Go on, and say so.
    [ "$code" = 0 ] || [ "$code" = 4 ] || exit "$code"
done
