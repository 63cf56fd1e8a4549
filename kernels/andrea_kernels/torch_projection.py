"""Q, K and V from X: one matmul per head, one per projection, or one for all.

Each kernel gets its weights in the form it wants, made outside the launch, and leaves its outputs as its
matmuls do; that all are the same q, k, v is checked on views of them.

The source: steps 1 to 3 of DESIGN.md, section 1. What is traded: a matmul per head leaves contiguous heads but reads X
once for each and has narrow columns; a fused one leaves strided heads. Known limits: no biases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from andrea_bench.kernel import Work, kernel
from andrea_bench.problem import ELEMENT_BYTES, Problem
from andrea_kernels.heads import head_counts, leaf, packed_views, widths

if TYPE_CHECKING:
    from torch import Tensor


HALF = ("bfloat16", "float16")


def _repacked_bytes(problem: Problem) -> int:
    """In 16-bit types oneDNN, torch's library for a CPU, first packs both operands its own way."""
    return problem.min_bytes("qkv_projection") if problem.dtype in HALF else 0


def _separate_bytes(problem: Problem) -> int:
    """In backward X's gradient from one matmul, beside the sum of those before."""
    return _repacked_bytes(problem) + 2 * _gradients(problem) * _input_bytes(problem)


def _repeated_bytes(problem: Problem) -> int:
    """X once a head: in backward its gradients before they are summed, in 16-bit types on a CPU a copy."""
    copies = _gradients(problem) * (problem.n_head + 1) + (problem.dtype in HALF) * problem.n_head
    return _repacked_bytes(problem) + copies * _input_bytes(problem)


def _gradients(problem: Problem) -> bool:
    return problem.direction in ("backward", "forward_backward")


def _input_bytes(problem: Problem) -> int:
    return problem.batch * problem.seq_len * problem.d_model * ELEMENT_BYTES[problem.dtype]


@kernel("qkv_projection", workspace_bytes=_separate_bytes)
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


@kernel("qkv_projection", workspace_bytes=_repeated_bytes)
def per_head_batched(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """One batched matmul over the heads, for each of Q, K and V.

    Weights are (heads, d_model, head_dim). X is repeated over heads by a stride of 0, its sequences folded
    into rows, since with a second batch dimension torch would copy it n_head times (in 16-bit types on a
    CPU it does all the same). The outputs are (heads, batch seq_len, head_dim); with batch 1 that is
    (batch, heads, seq_len, head_dim) already.
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


@kernel("qkv_projection", workspace_bytes=_separate_bytes)
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


@kernel("qkv_projection", workspace_bytes=_repacked_bytes)
def fused_qkv(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """One matmul for all heads of Q, K and V.

    The output stays packed, (batch, seq_len, (n_head + 2 n_kv_head) head_dim); reshaped to
    (batch, seq_len, heads, head_dim) and transposed it is q, k, v as strided views. No copy is made, here
    or for the check; what one would cost is the kernel split_heads of the op layout.
    """
    x, w_qkv = inputs["x"], inputs["w_qkv"]
    return Work(run=lambda: x @ w_qkv, canonical=lambda packed: packed_views(packed, problem))
