"""The kernels that the suites measure, one idea per file.

A file marks its functions with `andrea_bench.kernel.kernel` and imports torch and triton only inside them.
`attention`, `qkv_projection` and `output_projection` are the kernels written here as plain functions on
tensors, for use outside a benchmark; torch and triton are imported when one is first called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["attention", "output_projection", "qkv_projection"]


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None, variant: str = "exact"
) -> Tensor:
    """softmax(scale Q K^T) V for each head, with gradients: flash attention in Triton.

    q: (batch, n_head, seq_len, head_dim). k, v: (batch, n_kv_head, kv_len, head_dim), n_kv_head a divisor of
    n_head; query head h reads key head h // (n_head / n_kv_head), as torch's `enable_gqa`. float16, bfloat16
    or float32, all alike, on one CUDA device (CPU tensors with TRITON_INTERPRET=1); any strides with a last
    one of 1; head_dim up to 256. Returns (batch, n_head, seq_len, head_dim), contiguous.

    causal: aligned bottom-right: query i sees the keys up to i + kv_len - seq_len, so the last query sees
    every key, and one that sees none gives 0. torch's `is_causal` is aligned top-left: query i sees the keys
    up to i. Where kv_len = seq_len the two are the same.
    scale: by default 1 / sqrt(head_dim). variant: exact, padded, scalar_loads or per_head_block, as told in
    triton_attention.py. float32 products are exact, never tf32.

    Raises ValueError, naming the argument and what it must be, for anything else.
    """
    from andrea_kernels.flash.function import attention as compute

    return compute(q, k, v, causal=causal, scale=scale, variant=variant)


def qkv_projection(
    x: Tensor, w_qkv: Tensor, *, n_head: int, n_kv_head: int, head_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """x (batch, seq_len, d_model) times w_qkv (d_model, (n_head + 2 n_kv_head) head_dim), columns all Q heads,
    then K, then V: q, k, v, each (batch, heads, seq_len, head_dim), contiguous, from one launch."""
    from andrea_kernels.triton_projection import qkv_projection as compute

    return compute(x, w_qkv, n_head=n_head, n_kv_head=n_kv_head, head_dim=head_dim)


def output_projection(heads: Tensor, w_o: Tensor) -> Tensor:
    """heads (batch, n_head, seq_len, head_dim) times w_o (n_head head_dim, d_model), as they would be after
    concatenation, without making it: (batch, seq_len, d_model)."""
    from andrea_kernels.triton_projection import output_projection as compute

    return compute(heads, w_o)
