"""The output projection: concatenate the heads and multiply by W_O, or never concatenate.

The source: step 5 of DESIGN.md, section 1; the sum over heads is the same product, taken block by block. What is
traded: one large matmul and a copy before it, against n_head small ones whose sum goes through memory. Known limits: no
bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from andrea_bench.kernel import Work, kernel
from andrea_bench.problem import ELEMENT_BYTES, Problem
from andrea_kernels.heads import leaf

if TYPE_CHECKING:
    from torch import Tensor


HALF = ("bfloat16", "float16")


def _repacked_bytes(problem: Problem) -> int:
    """In 16-bit types oneDNN, torch's library for a CPU, first packs both operands its own way."""
    return problem.min_bytes("output_projection") if problem.dtype in HALF else 0


def _concatenated_bytes(problem: Problem) -> int:
    """The concatenated copy; in backward its gradient too."""
    heads = problem.batch * problem.seq_len * problem.n_head * problem.head_dim
    return 2 * heads * ELEMENT_BYTES[problem.dtype] + _repacked_bytes(problem)


def _sum_bytes(problem: Problem) -> int:
    """The running sum beside the next one."""
    sums = 2 * problem.batch * problem.seq_len * problem.d_model * ELEMENT_BYTES[problem.dtype]
    return sums + _repacked_bytes(problem)


@kernel("output_projection", workspace_bytes=_concatenated_bytes)
def concat_matmul(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """Concatenate the heads (a copy), then one matmul with W_O."""
    heads, w_o = inputs["heads"], inputs["w_o"]
    return Work(run=lambda: heads.transpose(1, 2).flatten(2) @ w_o)


@kernel("output_projection", workspace_bytes=_sum_bytes)
def per_head_sum(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """One matmul per head with its rows of W_O, each added to the sum of those before.

    Each head is a contiguous (batch, seq_len, head_dim) of its own, each part of W_O (head_dim, d_model).
    """
    import torch

    heads, w_o = inputs["heads"], inputs["w_o"]
    per_head = [leaf(head.contiguous(), heads) for head in heads.detach().unbind(1)]
    weights = [leaf(rows.contiguous(), w_o) for rows in w_o.detach().split(problem.head_dim)]

    def run() -> Tensor:
        # addmm multiplies and adds in one call; its operands are matrices, so sequences fold into rows.
        rows = [head.view(-1, problem.head_dim) for head in per_head]
        total = rows[0] @ weights[0]
        for row, weight in zip(rows[1:], weights[1:], strict=True):
            total = torch.addmm(total, row, weight)
        return total.view(problem.batch, -1, problem.d_model)

    def canonical_gradients(gradients: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        of_heads, of_weights = gradients[: problem.n_head], gradients[problem.n_head :]
        return torch.stack(list(of_heads), dim=1), torch.cat(list(of_weights))

    return Work(run, leaves=[*per_head, *weights], canonical_gradients=canonical_gradients)


@kernel("output_projection", workspace_bytes=_concatenated_bytes)
def einsum(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """One einsum of the heads with W_O as (n_head, head_dim, d_model).

    torch makes it one matmul; to sum over two dimensions at once it concatenates the heads by itself.
    """
    import torch

    heads, w_o = inputs["heads"], inputs["w_o"]
    weights = leaf(w_o.detach().view(problem.n_head, problem.head_dim, problem.d_model), w_o)
    return Work(
        run=lambda: torch.einsum("bhsd,hdm->bsm", heads, weights),
        leaves=[heads, weights],
        canonical_gradients=lambda gradients: (gradients[0], gradients[1].flatten(0, 1)),
    )


@kernel("output_projection", workspace_bytes=_repacked_bytes)
def strided_matmul(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """Heads as a fused attention kernel can leave them, strided, straight into one matmul.

    They lie in memory as (batch, seq_len, n_head, head_dim), made so outside the launch: concatenating them
    is a view, and no copy is made.
    """
    heads, w_o = inputs["heads"], inputs["w_o"]
    strided = leaf(heads.detach().transpose(1, 2).contiguous().transpose(1, 2), heads)
    return Work(run=lambda: strided.transpose(1, 2).flatten(2) @ w_o, leaves=[strided, w_o])
