"""Triton kernels of the tests' own: small enough to be checked by hand, and none of the project's."""

import triton
import triton.language as tl


@triton.jit
def sample_attention(
    q, k, v, out, seq_len, row_stride, head_dim: tl.constexpr, wide: tl.constexpr, narrow: tl.constexpr,
    block_m: tl.constexpr, block_n: tl.constexpr, hint: tl.constexpr,
):  # fmt: skip
    """Attention of one head, head_dim computed as `wide` columns and (where it is not 0) `narrow` more; rows are
    `row_stride` elements apart; `hint` lets the compiler know that this is a multiple of 8."""
    if hint:
        row_stride = row_stride // 8 * 8
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    left = tl.arange(0, wide)
    inside = rows[:, None] < seq_len
    q_left = tl.load(q + rows[:, None] * row_stride + left[None, :], inside & (left[None, :] < head_dim), other=0.0)
    acc_left = tl.zeros((block_m, wide), tl.float32)
    if narrow > 0:
        right = wide + tl.arange(0, narrow)
        mask_right = right < head_dim
        q_right = tl.load(q + rows[:, None] * row_stride + right[None, :], inside & mask_right[None, :], other=0.0)
        acc_right = tl.zeros((block_m, narrow), tl.float32)
    largest = tl.full((block_m,), -float("inf"), tl.float32)
    total = tl.zeros((block_m,), tl.float32)
    for start in range(0, seq_len, block_n):
        columns = start + tl.arange(0, block_n)
        here = columns[:, None] < seq_len
        at_left = columns[:, None] * row_stride + left[None, :]
        mask_left = here & (left[None, :] < head_dim)
        scores = tl.dot(q_left, tl.trans(tl.load(k + at_left, mask_left, other=0.0)))
        if narrow > 0:
            at_right = columns[:, None] * row_stride + right[None, :]
            scores = tl.dot(q_right, tl.trans(tl.load(k + at_right, here & mask_right[None, :], other=0.0)), scores)
        scores = tl.where(columns[None, :] < seq_len, scores, -float("inf"))
        above = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - above[:, None])
        fade = tl.exp2(largest - above)
        total = total * fade + tl.sum(weights, 1)
        weights = weights.to(out.dtype.element_ty)
        acc_left = tl.dot(weights, tl.load(v + at_left, mask_left, other=0.0), acc_left * fade[:, None])
        if narrow > 0:
            v_right = tl.load(v + at_right, here & mask_right[None, :], other=0.0)
            acc_right = tl.dot(weights, v_right, acc_right * fade[:, None])
        largest = above
    result = (acc_left / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + rows[:, None] * row_stride + left[None, :], result, inside & (left[None, :] < head_dim))
    if narrow > 0:
        result = (acc_right / total[:, None]).to(out.dtype.element_ty)
        tl.store(out + rows[:, None] * row_stride + right[None, :], result, inside & mask_right[None, :])


@triton.jit
def sample_matmul(a, b, out, k_len, m: tl.constexpr, n: tl.constexpr, k: tl.constexpr, precision: tl.constexpr):
    """One block's (m, k_len) times (k_len, n)."""
    rows, columns = tl.arange(0, m), tl.arange(0, n)
    acc = tl.zeros((m, n), tl.float32)
    for start in range(0, k_len, k):
        inner = start + tl.arange(0, k)
        left = tl.load(a + rows[:, None] * k_len + inner[None, :])
        right = tl.load(b + inner[:, None] * n + columns[None, :])
        acc = tl.dot(left, right, acc, input_precision=precision)
    tl.store(out + rows[:, None] * n + columns[None, :], acc)


@triton.jit
def sample_copy(source, target, size, block: tl.constexpr):
    """A copy: no loop, no product."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(target + at, tl.load(source + at, at < size), at < size)


@triton.jit
def sample_broken(source, target, block: tl.constexpr):
    """Does not compile: it stores a name that is not defined."""
    tl.store(target + tl.arange(0, block), undefined_name)  # noqa: F821
