"""Flash attention, backward: device code.

The idea (FlashAttention-2, arXiv 2307.08691, section 2.3): the weights P are made anew from Q, K and the
log-sum of each row that forward saved, so nothing of size seq_len x kv_len is ever stored. With
S = scale Q K^T, P = exp(S - log_sum) and delta = rowsum(dO * O):

    dV = P^T dO        dP = dO V^T        dS = P * (dP - delta)        dQ = scale dS K        dK = scale dS^T Q

Three launches: `attention_delta`; `attention_dkv`, whose blocks own a tile of keys of one key head and walk
over the queries of all heads that share it; `attention_dq`, whose blocks own a tile of queries and walk over
keys. So every gradient is summed in one block, in one order: results are the same from run to run, and
without atomics. What that trades: S and dP are computed twice, seven matrix products where five would do (the
FLOP convention counts five). Parts of the width and strides: see forward.py.

Known limits: no dropout, mask, bias, window or soft-capping, and no second derivatives. A block of dkv holds two
accumulators beside two tiles, so that most spill above head_dim 128 (reports/attention_compiled.md says where, and how
much). With few key heads dkv has few blocks, each of which walks over all query heads of its group: a short kv_len
leaves SMs idle.
"""

# Device code: Triton gives its arguments their types, and has no starred tuples.
# mypy: disable-error-code="no-untyped-def, assignment"

import triton
import triton.language as tl

from andrea_kernels.flash.forward import (
    add_product,
    describe_rows,
    dot_rows,
    head_offset,
    load_rows,
    load_tile,
    narrow,
    scale_rows,
    store_rows,
    visible_keys,
    zeros,
)


@triton.jit(do_not_specialize=["seq_len", "kv_len"])
def attention_delta(
    out, do, delta,
    out_batch, out_head, out_row, do_batch, do_head, do_row, seq_len, kv_len,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
    ALIGNMENT: tl.constexpr, EMULATE_BF16: tl.constexpr,
):  # fmt: skip
    """delta (batch, n_head, seq_len), float32: the sum of dO * O over each row of (..., seq_len, HEAD_DIM).

    Grid (query tiles, n_head, batch)."""
    first_row = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    batch = tl.program_id(2)
    out += head_offset(batch, out_batch, head, out_head, ALIGNMENT)
    do += head_offset(batch, do_batch, head, do_head, ALIGNMENT)
    out_tile = load_rows(out, first_row, seq_len, out_row, BLOCK_M, HEAD_DIM, PARTS, True, EMULATE_BF16)
    do_tile = load_rows(do, first_row, seq_len, do_row, BLOCK_M, HEAD_DIM, PARTS, True, EMULATE_BF16)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for i in tl.static_range(len(PARTS)):
        total += tl.sum(out_tile[i].to(tl.float32) * do_tile[i].to(tl.float32), 1)
    rows = first_row + tl.arange(0, BLOCK_M)
    tl.store(delta + head_offset(batch, tl.num_programs(1), head, 1, 1) * seq_len + rows, total, mask=rows < seq_len)


@triton.jit
def walk_queries(
    dk, dv, k_tile, v_tile, q, do, log_sum, delta, first_key, first_row, last_row, seq_len, kv_len,
    q_row, do_row, scale_log2,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr, EMULATE_BF16: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """Take in the queries first_row .. last_row of one head; all is transposed: rows are keys. q and do by
    describe_rows.

    Queries beyond seq_len load as zeros, with dO and delta 0, and add nothing. Keys beyond kv_len get
    gradients that are never stored."""
    for start in range(first_row, last_row, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        q_tile = load_tile(q, start, seq_len, q_row, BLOCK_M, HEAD_DIM, PARTS, True, EMULATE_BF16, DESCRIPTORS)
        do_tile = load_tile(do, start, seq_len, do_row, BLOCK_M, HEAD_DIM, PARTS, True, EMULATE_BF16, DESCRIPTORS)
        row_log_sum = tl.load(log_sum + rows, mask=rows < seq_len, other=0.0)
        row_delta = tl.load(delta + rows, mask=rows < seq_len, other=0.0)
        scores = dot_rows(k_tile, q_tile, PRECISION)  # (BLOCK_N, BLOCK_M)
        weights = tl.exp2(scores * scale_log2 - row_log_sum[None, :])
        if MASKED:
            keys = first_key + tl.arange(0, BLOCK_N)
            seen = visible_keys(rows, keys, seq_len, kv_len, CAUSAL)
            weights = tl.where(tl.trans(seen), weights, 0.0)
        dv = add_product(dv, narrow(weights, do_tile[0].dtype, EMULATE_BF16), do_tile, PRECISION)
        dweights = dot_rows(v_tile, do_tile, PRECISION)  # (BLOCK_N, BLOCK_M)
        dscores = weights * (dweights - row_delta[None, :])
        dk = add_product(dk, narrow(dscores, q_tile[0].dtype, EMULATE_BF16), q_tile, PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=["seq_len", "kv_len"])
def attention_dkv(
    q, k, v, do, log_sum, delta, dk, dv,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, do_batch, do_head, do_row,
    dk_batch, dk_head, dk_row, dv_batch, dv_head, dv_row, seq_len, kv_len, scale, scale_log2,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
    ALIGNMENT: tl.constexpr, EMULATE_BF16: tl.constexpr, DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """dK and dV (batch, n_kv_head, kv_len, HEAD_DIM). Grid (key tiles, n_kv_head, batch)."""
    first_key = tl.program_id(0) * BLOCK_N
    kv_head = tl.program_id(1)
    batch = tl.program_id(2)
    k += head_offset(batch, k_batch, kv_head, k_head, ALIGNMENT)
    v += head_offset(batch, v_batch, kv_head, v_head, ALIGNMENT)
    dk += head_offset(batch, dk_batch, kv_head, dk_head, ALIGNMENT)
    dv += head_offset(batch, dv_batch, kv_head, dv_head, ALIGNMENT)
    k_tile = load_rows(k, first_key, kv_len, k_row, BLOCK_N, HEAD_DIM, PARTS, True, EMULATE_BF16)
    v_tile = load_rows(v, first_key, kv_len, v_row, BLOCK_N, HEAD_DIM, PARTS, True, EMULATE_BF16)
    dk_acc = zeros(BLOCK_N, PARTS)
    dv_acc = zeros(BLOCK_N, PARTS)
    first_row = 0
    unmasked = 0  # queries from this one on see every key of the tile
    if CAUSAL:
        first_row = tl.maximum(first_key + seq_len - kv_len, 0) // BLOCK_M * BLOCK_M
        unmasked = tl.cdiv(tl.maximum(first_key + BLOCK_N - 1 + seq_len - kv_len, 0), BLOCK_M) * BLOCK_M
        unmasked = tl.maximum(tl.minimum(unmasked, seq_len), first_row)
    for member in range(GROUP):
        head = kv_head * GROUP + member
        q_of_head = q + head_offset(batch, q_batch, head, q_head, ALIGNMENT)
        do_of_head = do + head_offset(batch, do_batch, head, do_head, ALIGNMENT)
        q_of_head = describe_rows(q_of_head, seq_len, q_row, BLOCK_M, HEAD_DIM, PARTS, DESCRIPTORS)
        do_of_head = describe_rows(do_of_head, seq_len, do_row, BLOCK_M, HEAD_DIM, PARTS, DESCRIPTORS)
        rows_before = head_offset(batch, tl.num_programs(1) * GROUP, head, 1, 1) * seq_len
        if CAUSAL:
            dk_acc, dv_acc = walk_queries(
                dk_acc, dv_acc, k_tile, v_tile, q_of_head, do_of_head, log_sum + rows_before,
                delta + rows_before, first_key, first_row, unmasked, seq_len, kv_len, q_row, do_row, scale_log2,
                BLOCK_M, BLOCK_N, HEAD_DIM, PARTS, CAUSAL, True, PRECISION, EMULATE_BF16, DESCRIPTORS,
            )  # fmt: skip
        dk_acc, dv_acc = walk_queries(
            dk_acc, dv_acc, k_tile, v_tile, q_of_head, do_of_head, log_sum + rows_before,
            delta + rows_before, first_key, unmasked, seq_len, seq_len, kv_len, q_row, do_row, scale_log2,
            BLOCK_M, BLOCK_N, HEAD_DIM, PARTS, CAUSAL, False, PRECISION, EMULATE_BF16, DESCRIPTORS,
        )  # fmt: skip
    store_rows(dv, dv_acc, first_key, kv_len, dv_row, BLOCK_N, HEAD_DIM, PARTS, EMULATE_BF16)
    dk_acc = scale_rows(dk_acc, tl.full((BLOCK_N,), 1.0, tl.float32) * scale)
    store_rows(dk, dk_acc, first_key, kv_len, dk_row, BLOCK_N, HEAD_DIM, PARTS, EMULATE_BF16)


@triton.jit
def walk_keys_for_dq(
    dq, q_tile, do_tile, k, v, row_log_sum, row_delta, first_row, first_key, last_key, seq_len, kv_len,
    k_row, v_row, scale_log2,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr, EMULATE_BF16: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """Take in the keys first_key .. last_key, a multiple of BLOCK_N of them unless MASKED; k and v by describe_rows."""
    for start in range(first_key, last_key, BLOCK_N):
        k_tile = load_tile(k, start, kv_len, k_row, BLOCK_N, HEAD_DIM, PARTS, MASKED, EMULATE_BF16, DESCRIPTORS)
        v_tile = load_tile(v, start, kv_len, v_row, BLOCK_N, HEAD_DIM, PARTS, MASKED, EMULATE_BF16, DESCRIPTORS)
        scores = dot_rows(q_tile, k_tile, PRECISION)  # (BLOCK_M, BLOCK_N)
        weights = tl.exp2(scores * scale_log2 - row_log_sum[:, None])
        if MASKED:
            rows = first_row + tl.arange(0, BLOCK_M)
            keys = start + tl.arange(0, BLOCK_N)
            weights = tl.where(visible_keys(rows, keys, seq_len, kv_len, CAUSAL), weights, 0.0)
        dweights = dot_rows(do_tile, v_tile, PRECISION)  # (BLOCK_M, BLOCK_N)
        dscores = weights * (dweights - row_delta[:, None])
        dq = add_product(dq, narrow(dscores, k_tile[0].dtype, EMULATE_BF16), k_tile, PRECISION)
    return dq


@triton.jit(do_not_specialize=["seq_len", "kv_len"])
def attention_dq(
    q, k, v, do, log_sum, delta, dq,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, do_batch, do_head, do_row,
    dq_batch, dq_head, dq_row, seq_len, kv_len, scale, scale_log2,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
    ALIGNMENT: tl.constexpr, EMULATE_BF16: tl.constexpr, DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """dQ (batch, n_head, seq_len, HEAD_DIM). Grid (query tiles, n_head, batch)."""
    tile = tl.program_id(0)
    if CAUSAL:  # the longest first
        tile = tl.num_programs(0) - 1 - tile
    first_row = tile * BLOCK_M
    head = tl.program_id(1)
    batch = tl.program_id(2)
    kv_head = head // GROUP
    q += head_offset(batch, q_batch, head, q_head, ALIGNMENT)
    do += head_offset(batch, do_batch, head, do_head, ALIGNMENT)
    dq += head_offset(batch, dq_batch, head, dq_head, ALIGNMENT)
    k += head_offset(batch, k_batch, kv_head, k_head, ALIGNMENT)
    v += head_offset(batch, v_batch, kv_head, v_head, ALIGNMENT)
    rows_before = head_offset(batch, tl.num_programs(1), head, 1, 1) * seq_len
    rows = first_row + tl.arange(0, BLOCK_M)
    row_log_sum = tl.load(log_sum + rows_before + rows, mask=rows < seq_len, other=0.0)
    row_delta = tl.load(delta + rows_before + rows, mask=rows < seq_len, other=0.0)
    q_tile = load_rows(q, first_row, seq_len, q_row, BLOCK_M, HEAD_DIM, PARTS, True, EMULATE_BF16)
    do_tile = load_rows(do, first_row, seq_len, do_row, BLOCK_M, HEAD_DIM, PARTS, True, EMULATE_BF16)
    last_key = kv_len
    unmasked = kv_len
    if CAUSAL:
        last_key = tl.maximum(tl.minimum(kv_len, first_row + BLOCK_M + kv_len - seq_len), 0)
        unmasked = tl.maximum(tl.minimum(kv_len, first_row + 1 + kv_len - seq_len), 0)
    unmasked = unmasked // BLOCK_N * BLOCK_N
    k = describe_rows(k, kv_len, k_row, BLOCK_N, HEAD_DIM, PARTS, DESCRIPTORS)
    v = describe_rows(v, kv_len, v_row, BLOCK_N, HEAD_DIM, PARTS, DESCRIPTORS)
    acc = zeros(BLOCK_M, PARTS)
    acc = walk_keys_for_dq(
        acc, q_tile, do_tile, k, v, row_log_sum, row_delta, first_row, 0, unmasked, seq_len, kv_len, k_row, v_row,
        scale_log2, BLOCK_M, BLOCK_N, HEAD_DIM, PARTS, CAUSAL, False, PRECISION, EMULATE_BF16, DESCRIPTORS,
    )  # fmt: skip
    acc = walk_keys_for_dq(
        acc, q_tile, do_tile, k, v, row_log_sum, row_delta, first_row, unmasked, last_key, seq_len, kv_len,
        k_row, v_row, scale_log2, BLOCK_M, BLOCK_N, HEAD_DIM, PARTS, CAUSAL, True, PRECISION, EMULATE_BF16, DESCRIPTORS,
    )  # fmt: skip
    acc = scale_rows(acc, tl.full((BLOCK_M,), 1.0, tl.float32) * scale)
    store_rows(dq, acc, first_row, seq_len, dq_row, BLOCK_M, HEAD_DIM, PARTS, EMULATE_BF16)
