#!/bin/sh
# Attention on an H200: forward and backward TFLOP/s of the Triton kernels beside every backend that torch has
# there, and beside the padded kernel that most Triton attention is (triton_padded).
#
#   reports/measure_h200.sh [FOLDER]            on the GPU; one Run for each seq_len, about an hour
#   DRY_RUN=1 reports/measure_h200.sh [FOLDER]  anywhere: Triton's interpreter, tiny sizes; the times mean nothing
#
# Sizes follow the FlashAttention papers' sweeps: batch * seq_len = 16384 tokens, here with 16 heads of each head_dim.
# Aims: at least torch's flash backend at every head_dim; 1.15 times it at 72, 80 and 112; 0.8 times the fastest
# backend at 64 and 128. `andrea-bench show RUN` prints each Run again; commit what it printed beside this script.
set -eu
folder=${1:-results/h200}
bench=${ANDREA_BENCH:-andrea-bench}
kernels=sdpa_math,sdpa_flash,sdpa_efficient,sdpa_cudnn,flex,triton_exact,triton_padded,triton_scalar_loads

if [ "${DRY_RUN:-0}" = 1 ]; then
    export TRITON_INTERPRET=1
    tokens=16 lengths=16 head_dims=72 heads=1 dtype=float16
    options="--device cpu --min-samples 2 --time-limit 0.1"
    kernels=sdpa_math,triton_exact,triton_padded
else
    tokens=16384 lengths="512 1024 2048 4096 8192 16384" heads=16 dtype=bfloat16
    head_dims=32,40,48,64,72,80,96,104,112,120,128,160,192,224,256
    options="--device cuda"
fi

for seq_len in $lengths; do
    code=0
    # shellcheck disable=SC2086  # options are several words
    "$bench" sweep attention --kernel "$kernels" $options --out "$folder/seq_len_$seq_len" \
        -a "n_head=$heads" -a "head_dim=$head_dims" -a "seq_len=$seq_len" -a "batch=$((tokens / seq_len))" \
        -a "dtype=$dtype" -a causal=true,false -a direction=forward,backward || code=$?
    # 4: a cell could not run (a backend that refuses a head_dim is an answer, and exits 0). Go on, and say so.
    [ "$code" = 0 ] || [ "$code" = 4 ] || exit "$code"
done
