"""How heads lie in the packed tensors: Q, K and V as views, as copies, and their gradients put together.

The packed width is (n_head + 2 n_kv_head) head_dim: all Q heads, then all K heads, then all V heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from andrea_bench.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor


def head_counts(problem: Problem) -> tuple[int, int, int]:
    """Heads of Q, K and V."""
    return problem.n_head, problem.n_kv_head, problem.n_kv_head


def widths(problem: Problem) -> list[int]:
    """Columns of Q, K and V in the packed width."""
    return [heads * problem.head_dim for heads in head_counts(problem)]


def leaf(tensor: Tensor, like: Tensor) -> Tensor:
    """`tensor` as a leaf of its own, cut from what it was made of; wants a gradient if `like` does."""
    return tensor.detach().requires_grad_(like.requires_grad)


def packed_views(packed: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """packed (batch, seq_len, packed width) -> q, k, v, each (batch, heads, seq_len, head_dim): views of
    it, in which a head's rows lie the packed width apart. Nothing is copied."""
    heads = packed.unflatten(-1, (-1, problem.head_dim)).transpose(1, 2)
    q, k, v = heads.split(head_counts(problem), dim=1)
    return q, k, v


def split_heads(packed: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """The same as contiguous copies: each head is a (seq_len, head_dim) matrix without gaps."""
    q, k, v = packed_views(packed, problem)
    return q.contiguous(), k.contiguous(), v.contiguous()


def merge_heads(heads: Sequence[Tensor]) -> Tensor:
    """q, k, v (batch, heads, seq_len, head_dim) -> packed (batch, seq_len, packed width)."""
    import torch

    return torch.cat(list(heads), dim=1).transpose(1, 2).flatten(2)
