"""Heads as a strided view of the fused projection, or as a contiguous copy: Q K^T, attention, the copy alone.

Each kernel of a part computes the same; what differs is how q, k, v lie in memory, and whether making the
copy counts. q, k, v are leaves of their own, so that backward does not count the views' gradients.

The source: the statement contiguous-heads of DESIGN.md, section 1. What is traded: a copy, once, against gaps between
rows at every read. Known limits: kv_len equal to seq_len, as all is cut from one packed tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from andrea_bench.kernel import Work, kernel
from andrea_bench.problem import ELEMENT_BYTES, Problem
from andrea_kernels.heads import leaf, merge_heads, packed_views, split_heads, widths

if TYPE_CHECKING:
    from torch import Tensor


def _check(problem: Problem, device: str) -> str | None:
    if problem.kv_len != problem.seq_len:
        return (
            f"needs kv_len equal to seq_len {problem.seq_len}, not {problem.kv_len}: "
            "its keys are of the same packed tensor"
        )
    return None


def _copy_bytes(problem: Problem) -> int:
    return problem.batch * problem.seq_len * sum(widths(problem)) * ELEMENT_BYTES[problem.dtype]


def _qk_bytes(problem: Problem) -> int:
    """q and k as copies, and in backward their gradients."""
    return 2 * _copy_bytes(problem)


def _attention_bytes(problem: Problem) -> int:
    """Copies, log-sum-exp per row, a tile of scores per core; in backward float32 gradients of all heads."""
    rows = problem.batch * problem.n_head * problem.seq_len
    backward = problem.direction in ("backward", "forward_backward")
    return 2 * _copy_bytes(problem) + 4 * rows + 2**22 + backward * 12 * rows * problem.head_dim


def _leaves(problem: Problem, inputs: Mapping[str, Tensor], *, contiguous: bool) -> list[Tensor]:
    """q, k, v (batch, heads, seq_len, head_dim), cut from the packed tensor as views or as copies."""
    packed = inputs["qkv"]
    cut = split_heads if contiguous else packed_views
    return [leaf(heads, packed) for heads in cut(packed.detach(), problem)]


def _packed_gradient(gradients: Sequence[Tensor]) -> tuple[Tensor]:
    return (merge_heads(gradients),)


@kernel("layout", name="split_heads", part="copy", check=_check, workspace_bytes=_copy_bytes)
def split_heads_copy(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """The copy alone: the packed projection split and transposed into contiguous q, k and v."""
    views = _leaves(problem, inputs, contiguous=False)
    return Work(lambda: [view.contiguous() for view in views], tuple, views, _packed_gradient)


# ---- Q K^T ----------------------------------------------------------------------------------------------
def _strided_scores(q: Tensor, k: Tensor) -> list[Tensor]:
    """Q K^T on strided heads without a copy: one bmm over KV heads for each sequence, and each query head
    of a KV head's group, since one bmm can step over one such dimension only. With batch 1 and no GQA: one.
    Returns batch times group of (n_kv_head, seq_len, kv_len)."""
    import torch

    group = q.shape[1] // k.shape[1]
    return [
        torch.bmm(queries[member::group], keys.transpose(1, 2))
        for queries, keys in zip(q, k, strict=True)
        for member in range(group)
    ]


def _contiguous_scores(q: Tensor, k: Tensor) -> Tensor:
    """Q K^T on contiguous heads by one bmm, the queries of a group stacked as rows of one matrix.
    Returns (batch, n_head, seq_len, kv_len)."""
    batch, n_kv_head, kv_len, head_dim = k.shape
    rows = q.view(batch, n_kv_head, -1, head_dim)
    return (rows @ k.transpose(-1, -2)).view(*q.shape[:-1], kv_len)


def _qk_gradient(gradients: Sequence[Tensor]) -> tuple[Tensor]:
    """V takes no part in Q K^T: its gradient is 0."""
    import torch

    dq, dk = gradients
    return (merge_heads([dq, dk, torch.zeros_like(dk)]),)


@kernel("layout", part="qk", check=_check, workspace_bytes=_qk_bytes)
def qk_strided(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """Q K^T straight on the strided views of the packed projection.

    No copy is made: with batch above 1 or GQA by several bmm, else by one.
    """
    import torch

    q, k, _ = _leaves(problem, inputs, contiguous=False)

    def canonical(scores: Sequence[Tensor]) -> tuple[Tensor]:
        by_group = torch.stack(list(scores)).unflatten(0, (problem.batch, -1))  # (batch, group, n_kv_head, ...)
        return (by_group.transpose(1, 2).flatten(1, 2),)

    return Work(lambda: _strided_scores(q, k), canonical, [q, k], _qk_gradient)


@kernel("layout", part="qk", check=_check, workspace_bytes=_qk_bytes)
def qk_contiguous(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """Q K^T on contiguous copies that were made before, outside the launch."""
    q, k, _ = _leaves(problem, inputs, contiguous=True)
    return Work(lambda: _contiguous_scores(q, k), leaves=[q, k], canonical_gradients=_qk_gradient)


@kernel("layout", part="qk", check=_check, workspace_bytes=_qk_bytes)
def qk_copy_then_contiguous(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """The copies of Q and K, then Q K^T on them: both in the launch."""
    q, k, _ = _leaves(problem, inputs, contiguous=False)
    return Work(
        run=lambda: _contiguous_scores(q.contiguous(), k.contiguous()),
        leaves=[q, k],
        canonical_gradients=_qk_gradient,
    )


# ---- attention ------------------------------------------------------------------------------------------
def _attention(problem: Problem, leaves: Sequence[Tensor], *, copy: bool) -> Work:
    from torch.nn.functional import scaled_dot_product_attention

    options: dict[str, Any] = {"is_causal": problem.causal and problem.seq_len > 1}
    if problem.n_kv_head != problem.n_head:
        options["enable_gqa"] = True
    q, k, v = leaves

    def run() -> Tensor:
        if copy:
            return scaled_dot_product_attention(q.contiguous(), k.contiguous(), v.contiguous(), **options)
        return scaled_dot_product_attention(q, k, v, **options)

    return Work(run, leaves=leaves, canonical_gradients=_packed_gradient)


@kernel("layout", part="attention", check=_check, workspace_bytes=_attention_bytes)
def attention_strided(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """scaled_dot_product_attention straight on the strided views of the packed projection."""
    return _attention(problem, _leaves(problem, inputs, contiguous=False), copy=False)


@kernel("layout", part="attention", check=_check, workspace_bytes=_attention_bytes)
def attention_contiguous(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """scaled_dot_product_attention on contiguous copies that were made before, outside the launch."""
    return _attention(problem, _leaves(problem, inputs, contiguous=True), copy=False)


@kernel("layout", part="attention", check=_check, workspace_bytes=_attention_bytes)
def attention_copy_then_contiguous(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """The copies of q, k and v, then scaled_dot_product_attention on them: both in the launch."""
    return _attention(problem, _leaves(problem, inputs, contiguous=False), copy=True)
