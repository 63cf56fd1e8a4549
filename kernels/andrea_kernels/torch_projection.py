"""Q, K and V from X: one matmul per head, one per projection, or one for all.

Each kernel gets its weights in the form it wants, made outside the launch, and leaves its outputs as its
matmuls do; that all are the same q, k, v is checked on views of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from andrea_bench.kernel import Work, kernel
from andrea_bench.problem import ELEMENT_BYTES, Problem
from andrea_kernels.heads import head_counts, leaf, packed_views, widths

if TYPE_CHECKING:
    from torch import Tensor


def _gradient_bytes(problem: Problem) -> int:
    """Room for X's gradient from one matmul beside the sum of those before: only backward needs it."""
    if problem.direction not in ("backward", "forward_backward"):
        return 0
    return 2 * problem.batch * problem.seq_len * problem.d_model * ELEMENT_BYTES[problem.dtype]


def _per_head_gradient_bytes(problem: Problem) -> int:
    """Room for X's gradient from every head, before they are summed."""
    heads = max(head_counts(problem)) + 1
    return _gradient_bytes(problem) // 2 * heads


@kernel("qkv_projection", workspace_bytes=_gradient_bytes)
def per_head_loop(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """One matmul for each head of Q, K and V, in a loop.

    Weights are n_head + 2 n_kv_head contiguous matrices (d_model, head_dim); the outputs are as many
    (batch, seq_len, head_dim), not put together.
    """
    import torch

    x, w_qkv = inputs["x"], inputs["w_qkv"]
    weights = [leaf(w.contiguous(), w_qkv) for w in w_qkv.detach().split(problem.head_dim, dim=1)]

    def canonical(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        heads = torch.stack(list(outputs), dim=1)  # (batch, n_head + 2 n_kv_head, seq_len, head_dim)
        return heads.split(head_counts(problem), dim=1)

    return Work(
        run=lambda: [x @ weight for weight in weights],
        canonical=canonical,
        leaves=[x, *weights],
        canonical_gradients=lambda gradients: (gradients[0], torch.cat(list(gradients[1:]), dim=1)),
    )


@kernel("qkv_projection", workspace_bytes=_per_head_gradient_bytes)
def per_head_batched(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """One batched matmul over the heads, for each of Q, K and V.

    Weights are (heads, d_model, head_dim). X is repeated over heads by a stride of 0, its sequences folded
    into rows, since more than one batch dimension would make torch copy it n_head times. The outputs are
    (heads, batch seq_len, head_dim); with batch 1 that is (batch, heads, seq_len, head_dim) already.
    """
    import torch

    x, w_qkv = inputs["x"], inputs["w_qkv"]
    weights = [
        leaf(w.unflatten(1, (-1, problem.head_dim)).transpose(0, 1).contiguous(), w_qkv)
        for w in w_qkv.detach().split(widths(problem), dim=1)
    ]

    def run() -> list[Tensor]:
        rows = x.reshape(1, -1, problem.d_model)
        return [torch.bmm(rows.expand(len(weight), -1, -1), weight) for weight in weights]

    def canonical(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(out.unflatten(1, (problem.batch, -1)).transpose(0, 1) for out in outputs)

    def canonical_gradients(gradients: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        columns = [gradient.transpose(0, 1).flatten(1) for gradient in gradients[1:]]
        return gradients[0], torch.cat(columns, dim=1)

    return Work(run, canonical, [x, *weights], canonical_gradients)


@kernel("qkv_projection", workspace_bytes=_gradient_bytes)
def fused_each(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """One matmul for all heads of Q, one for K, one for V.

    Each output stays (batch, seq_len, heads head_dim); reshaped and transposed it is
    (batch, heads, seq_len, head_dim) as a strided view. No copy is made, here or for the check.
    """
    import torch

    x, w_qkv = inputs["x"], inputs["w_qkv"]
    weights = [leaf(w.contiguous(), w_qkv) for w in w_qkv.detach().split(widths(problem), dim=1)]

    def canonical(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(out.unflatten(-1, (-1, problem.head_dim)).transpose(1, 2) for out in outputs)

    return Work(
        run=lambda: [x @ weight for weight in weights],
        canonical=canonical,
        leaves=[x, *weights],
        canonical_gradients=lambda gradients: (gradients[0], torch.cat(list(gradients[1:]), dim=1)),
    )


@kernel("qkv_projection")
def fused_qkv(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """One matmul for all heads of Q, K and V.

    The output stays packed, (batch, seq_len, (n_head + 2 n_kv_head) head_dim); reshaped to
    (batch, seq_len, heads, head_dim) and transposed it is q, k, v as strided views. No copy is made, here
    or for the check; what one would cost is the kernel split_heads of the op layout.
    """
    x, w_qkv = inputs["x"], inputs["w_qkv"]
    return Work(run=lambda: x @ w_qkv, canonical=lambda packed: packed_views(packed, problem))
