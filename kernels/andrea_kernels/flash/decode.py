"""Attention of a few queries against many keys: device code.

The idea (Flash-Decoding, Dao, Haziza, Massa, Sizov 2023): with one query there are too few tiles of queries to
fill a GPU, so the keys are split instead. Each block takes some of the keys and leaves a finished little
attention of its own: the weighted mean of its values and the log-sum of its weights. A second launch takes the
mean of those means, weighted by exp2 of their log-sums. With one split the first launch is all.

All query heads that share a key head, times all queries, are the rows of one tile: K and V are read once for
each key head, not once for each query head.

What it trades: a matrix instruction has at least 16 rows, so with one row 15 of 16 products are wasted; reading
K and V is what takes the time. The partial results cost 4 (head_dim + 1) bytes for each row and split, written and
read once. The width is in parts, as in forward.py.

Known limits: keys lie evenly strided (no pages of a cache), all sequences are of the same length; forward only.
Offsets are 64 bits wide.
"""
# Device code: Triton gives its arguments their types, and has no starred tuples.
# mypy: disable-error-code="no-untyped-def, assignment"
# ruff: noqa: RUF005

import triton
import triton.language as tl

from andrea_kernels.flash.forward import (
    LOWEST,
    add_product,
    dot_rows,
    load_rows,
    narrow,
    scale_rows,
    visible_keys,
    zeros,
)

# Splits that the second launch reads at once.
SPLITS_TOGETHER = tl.constexpr(16)


# Lengths are not specialised on, so that one binary serves a cache as it grows.
@triton.jit(do_not_specialize=["n_kv_head", "seq_len", "kv_len", "splits", "keys_per_split"])
def decode_split(
    q, k, v, out, log_sum,
    q_batch, q_head, k_batch, k_head, v_batch, v_head, n_kv_head, seq_len, kv_len, splits, keys_per_split, scale_log2,
    q_row: tl.constexpr, k_row: tl.constexpr, v_row: tl.constexpr,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
    ALIGNMENT: tl.constexpr, EMULATE_BF16: tl.constexpr,
):  # fmt: skip
    """The attention of each query to the keys of one split.

    q (batch, n_kv_head GROUP, seq_len, HEAD_DIM), k and v (batch, n_kv_head, kv_len, HEAD_DIM), by strides in
    elements; ALIGNMENT divides those of batch and head. out (batch, n_head, seq_len, splits, HEAD_DIM), and
    log_sum (batch, n_head, seq_len, splits) in units of log2, contiguous. Split i has the keys from
    i keys_per_split on. Grid: one block for each (batch, key head, tile of rows, split), the split fastest."""
    row_tiles = tl.cdiv(GROUP * seq_len, BLOCK_M)
    block = tl.program_id(0)
    split = block % splits
    tile = block // splits % row_tiles
    batch_head = block // splits // row_tiles
    batch = (batch_head // n_kv_head).to(tl.int64)
    kv_head = (batch_head % n_kv_head).to(tl.int64)
    k += tl.multiple_of(batch * k_batch + kv_head * k_head, ALIGNMENT)
    v += tl.multiple_of(batch * v_batch + kv_head * v_head, ALIGNMENT)

    # Rows are (query head of the group, query) pairs.
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    there = row < GROUP * seq_len
    query = row % seq_len
    q_rows = q + tl.multiple_of(
        batch * q_batch + (kv_head * GROUP + row // seq_len) * q_head + query.to(tl.int64) * q_row, ALIGNMENT
    )  # (BLOCK_M,)
    q_tile = ()
    for i in tl.static_range(len(PARTS)):
        column = PARTS[i][0] + tl.arange(0, PARTS[i][1])
        part = tl.load(q_rows[:, None] + column[None, :], there[:, None] & (column < HEAD_DIM)[None, :], other=0.0)
        if EMULATE_BF16:
            part = part.to(tl.float32)
        q_tile = q_tile + (part,)

    acc = zeros(BLOCK_M, PARTS)
    highest = tl.full((BLOCK_M,), LOWEST, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    first_key = split * keys_per_split
    for start in range(first_key, tl.minimum(first_key + keys_per_split, kv_len), BLOCK_N):
        k_tile = load_rows(k, start, kv_len, k_row, BLOCK_N, HEAD_DIM, PARTS, True, EMULATE_BF16)
        scores = dot_rows(q_tile, k_tile, PRECISION)  # (BLOCK_M, BLOCK_N)
        seen = visible_keys(query, start + tl.arange(0, BLOCK_N), seq_len, kv_len, CAUSAL)
        scores = tl.where(seen, scores * scale_log2, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, 1))  # (BLOCK_M,)
        weights = tl.exp2(scores - new_highest[:, None])
        shrink = tl.exp2(highest - new_highest)
        total = total * shrink + tl.sum(weights, 1)
        v_tile = load_rows(v, start, kv_len, v_row, BLOCK_N, HEAD_DIM, PARTS, True, EMULATE_BF16)
        weights = narrow(weights, v.dtype.element_ty, EMULATE_BF16)
        acc = add_product(scale_rows(acc, shrink), weights, v_tile, PRECISION)
        highest = new_highest

    # No key seen: 0, and a log-sum so low that it weighs nothing beside a split that has seen one.
    keyless = total == 0.0
    total = tl.where(keyless, 1.0, total)
    acc = scale_rows(acc, 1.0 / total)
    result = (batch_head.to(tl.int64) * (GROUP * seq_len) + row) * splits + split  # (BLOCK_M,)
    for i in tl.static_range(len(PARTS)):
        column = PARTS[i][0] + tl.arange(0, PARTS[i][1])
        value = acc[i]
        if out.dtype.element_ty == tl.bfloat16:
            value = narrow(value, tl.bfloat16, EMULATE_BF16)
        tl.store(
            out + result[:, None] * HEAD_DIM + column[None, :],
            value.to(out.dtype.element_ty),
            mask=there[:, None] & (column < HEAD_DIM)[None, :],
        )
    tl.store(log_sum + result, tl.where(keyless, LOWEST, highest + tl.log2(total)), mask=there)


@triton.jit(do_not_specialize=["splits"])
def decode_reduce(
    partial, log_sum, out, splits,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, ALL_SPLITS: tl.constexpr, EMULATE_BF16: tl.constexpr,
):  # fmt: skip
    """out (rows, HEAD_DIM): the mean over the splits of partial (rows, splits, HEAD_DIM), weighted by exp2 of
    log_sum (rows, splits). WIDTH and ALL_SPLITS: HEAD_DIM and splits rounded up to powers of two; nothing is
    multiplied as matrices here, so padding costs no more than idle lanes. Grid: one block a row."""
    row = tl.program_id(0).to(tl.int64)
    log_sum += row * splits
    partial += row * splits * HEAD_DIM
    each = tl.arange(0, ALL_SPLITS)
    sums = tl.load(log_sum + each, mask=each < splits, other=float("-inf"))
    highest = tl.max(sums, 0)
    total = tl.sum(tl.exp2(sums - highest), 0)
    column = tl.arange(0, WIDTH)
    mean = tl.zeros((WIDTH,), tl.float32)
    for first in range(0, splits, SPLITS_TOGETHER):
        split = first + tl.arange(0, SPLITS_TOGETHER)
        weights = tl.exp2(tl.load(log_sum + split, mask=split < splits, other=float("-inf")) - highest)
        values = tl.load(
            partial + split[:, None] * HEAD_DIM + column[None, :],
            mask=(split < splits)[:, None] & (column < HEAD_DIM)[None, :],
            other=0.0,
        )
        mean += tl.sum(values * weights[:, None], 0)
    value = mean / total
    if out.dtype.element_ty == tl.bfloat16:
        value = narrow(value, tl.bfloat16, EMULATE_BF16)
    tl.store(out + row * HEAD_DIM + column, value.to(out.dtype.element_ty), mask=column < HEAD_DIM)
