"""The whole attention layer in five steps: three projections, attention, output projection.

The source: the five steps of DESIGN.md, section 1, each in the form that its name says. What it trades: the matrix
products and the attention are torch's own, as fast as its libraries, with each step's result going through memory.
Known limits: self-attention of one X (kv_len equal to seq_len); no biases, norms, dropout or rotary embedding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from andrea_bench.kernel import Work, kernel
from andrea_bench.problem import ELEMENT_BYTES, Problem
from andrea_kernels.heads import head_counts, leaf, packed_views, split_heads, widths

if TYPE_CHECKING:
    from torch import Tensor


def _check(problem: Problem, device: str) -> str | None:
    if problem.kv_len != problem.seq_len:
        return (
            f"needs kv_len equal to seq_len {problem.seq_len}, not {problem.kv_len}: queries and keys are of the same X"
        )
    return None


def _stage_bytes(problem: Problem) -> int:
    """What the stages hand on: the packed projection, its copies, the heads and their concatenation; in
    backward all gradients of these beside them."""
    tokens = problem.batch * problem.seq_len
    element = ELEMENT_BYTES[problem.dtype]
    held = tokens * (2 * sum(widths(problem)) + 2 * problem.n_head * problem.head_dim) * element
    held += 4 * tokens * problem.n_head + 2**22  # log-sum-exp, tiles of scores
    if problem.direction in ("backward", "forward_backward"):
        held += held + 4 * tokens * 3 * problem.n_head * problem.head_dim
    return held


def _per_head_stage_bytes(problem: Problem) -> int:
    """Beside that, X's gradients of all heads."""
    gradients = problem.direction in ("backward", "forward_backward")
    return _stage_bytes(problem) + gradients * (
        problem.batch * problem.seq_len * problem.d_model * (problem.n_head + 1) * ELEMENT_BYTES[problem.dtype]
    )


def _attend(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """scaled_dot_product_attention as torch chooses; (batch, n_head, seq_len, head_dim)."""
    from torch.nn.functional import scaled_dot_product_attention

    options: dict[str, Any] = {"is_causal": problem.causal and problem.seq_len > 1}
    if problem.n_kv_head != problem.n_head:
        options["enable_gqa"] = True
    return scaled_dot_product_attention(q, k, v, **options)


@kernel("layer", check=_check, workspace_bytes=_stage_bytes)
def five_steps(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """One fused projection, heads copied contiguous, attention as torch chooses, concatenation, W_O."""
    x, w_qkv, w_o = inputs["x"], inputs["w_qkv"], inputs["w_o"]

    def run() -> Tensor:
        q, k, v = split_heads(x @ w_qkv, problem)
        return _attend(problem, q, k, v).transpose(1, 2).flatten(2) @ w_o

    return Work(run)


@kernel("layer", check=_check, workspace_bytes=_stage_bytes)
def five_steps_strided(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """The same without the copy: attention on strided views of the fused projection."""
    x, w_qkv, w_o = inputs["x"], inputs["w_qkv"], inputs["w_o"]

    def run() -> Tensor:
        q, k, v = packed_views(x @ w_qkv, problem)
        return _attend(problem, q, k, v).transpose(1, 2).flatten(2) @ w_o

    return Work(run)


@kernel("layer", check=_check, workspace_bytes=_per_head_stage_bytes)
def five_steps_per_head(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """The same with one matmul per head of Q, K and V, and one per head with its rows of W_O, summed."""
    import torch

    x, w_qkv, w_o = inputs["x"], inputs["w_qkv"], inputs["w_o"]
    projections = [leaf(w.contiguous(), w_qkv) for w in w_qkv.detach().split(problem.head_dim, dim=1)]
    outputs = [leaf(rows.contiguous(), w_o) for rows in w_o.detach().split(problem.head_dim)]

    def run() -> Tensor:
        per_head = [x @ weight for weight in projections]
        q, k, v = (torch.stack(part, dim=1) for part in _split(per_head, head_counts(problem)))
        heads = _attend(problem, q, k, v).unbind(1)
        total = heads[0] @ outputs[0]
        for head, weight in zip(heads[1:], outputs[1:], strict=True):
            total = total + head @ weight
        return total

    def canonical_gradients(gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
        of_x, of_qkv, of_o = _split(gradients, (1, len(projections), len(outputs)))
        return of_x[0], torch.cat(of_qkv, dim=1), torch.cat(of_o)

    return Work(run, leaves=[x, *projections, *outputs], canonical_gradients=canonical_gradients)


def _split(tensors: Sequence[Tensor], counts: Sequence[int]) -> list[list[Tensor]]:
    """The tensors in consecutive lists of the given lengths."""
    remaining = iter(tensors)
    return [[next(remaining) for _ in range(count)] for count in counts]
