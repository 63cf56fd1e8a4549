"""The plain float64 reference that every kernel is compared with before it is timed.

No blocking, no fused operation, nothing clever: scores are written out whole. Written independently of the
kernels, so that an error here and there can't be the same one.
"""

from typing import Any

import torch
from torch import Tensor

# Above this many scores the reference is computed for a sample of query rows only.
WHOLE_REFERENCE_SCORES = 2**24


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float | None = None) -> Tensor:
    """softmax(scale Q K^T) V in float64, per head.

    q (batch, n_head, seq_len, head_dim); k, v (batch, n_kv_head, kv_len, head_dim); returns
    (batch, n_head, seq_len, head_dim). Causal is aligned bottom-right: query i sees keys up to
    i + kv_len - seq_len. A query that sees no key gives 0.
    """
    rows = torch.arange(q.shape[2])
    return attention_rows(q, k, v, rows, causal=causal, scale=scale)


def attention_rows(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, *, causal: bool, scale: float | None = None
) -> Tensor:
    """`attention` for the query positions `rows` (n,) alone: (batch, n_head, n, head_dim)."""
    seq_len, kv_len = q.shape[2], k.shape[2]
    group = q.shape[1] // k.shape[1]
    q64 = q[:, :, rows].double()
    k64 = k.double().repeat_interleave(group, dim=1)  # (batch, n_head, kv_len, head_dim)
    v64 = v.double().repeat_interleave(group, dim=1)
    if scale is None:
        scale = q.shape[-1] ** -0.5
    scores = q64 @ k64.transpose(-1, -2) * scale  # (batch, n_head, n, kv_len)
    if causal:
        last_seen = rows.to(q.device) + (kv_len - seq_len)
        hidden = torch.arange(kv_len, device=q.device)[None, :] > last_seen[:, None]
        scores = scores.masked_fill(hidden, float("-inf"))
    if kv_len == 0:
        return torch.zeros_like(q64)
    # A row without keys would be exp(-inf + inf); its largest score is taken as 0, its sum as 1.
    largest = scores.amax(-1, keepdim=True).nan_to_num(neginf=0.0)
    weights = (scores - largest).exp()
    total = weights.sum(-1, keepdim=True)
    return (weights / total.where(total > 0, 1.0)) @ v64


def qkv_projection(
    x: Tensor, w_qkv: Tensor, *, n_head: int, n_kv_head: int, head_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """x (batch, seq_len, d_model) times w_qkv (d_model, (n_head + 2 n_kv_head) head_dim), columns all Q
    heads, then K, then V; returns q, k, v, each (batch, heads, seq_len, head_dim), in float64."""
    packed = x.double() @ w_qkv.double()
    return split_heads(packed, n_head=n_head, n_kv_head=n_kv_head, head_dim=head_dim)


def split_heads(packed: Tensor, *, n_head: int, n_kv_head: int, head_dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """(batch, seq_len, (n_head + 2 n_kv_head) head_dim) as q, k, v views (batch, heads, seq_len, head_dim)."""
    heads = packed.unflatten(-1, (n_head + 2 * n_kv_head, head_dim)).transpose(1, 2)
    q, k, v = heads.split((n_head, n_kv_head, n_kv_head), dim=1)
    return q, k, v


def output_projection(heads: Tensor, w_o: Tensor) -> Tensor:
    """heads (batch, n_head, seq_len, head_dim) concatenated, times w_o (n_head head_dim, d_model):
    (batch, seq_len, d_model), in float64."""
    return heads.double().transpose(1, 2).flatten(2) @ w_o.double()


def layer(x: Tensor, w_qkv: Tensor, w_o: Tensor, *, n_head: int, n_kv_head: int, head_dim: int, causal: bool) -> Tensor:
    """The five steps: project, attend, concatenate, project; (batch, seq_len, d_model), in float64."""
    q, k, v = qkv_projection(x, w_qkv, n_head=n_head, n_kv_head=n_kv_head, head_dim=head_dim)
    return output_projection(attention(q, k, v, causal=causal), w_o)


def sample_rows(seq_len: int, seed: int, count: int = 48) -> Tensor:
    """Query rows that stand for all: the first, the last, those around multiples of 16 to 256 (tile edges),
    and some drawn by `seed`; sorted, each once."""
    edges = {0, 1, seq_len - 2, seq_len - 1}
    for tile in (16, 32, 64, 128, 256):
        middle = seq_len // 2 // tile * tile
        edges |= {tile - 1, tile, middle - 1, middle, seq_len // tile * tile - 1, seq_len // tile * tile}
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(seq_len, (count,), generator=generator).tolist()
    return torch.tensor(sorted(row for row in edges | set(drawn) if 0 <= row < seq_len))


def relative_error(result: Tensor, reference: Tensor) -> float:
    """Largest absolute difference over the largest absolute reference value (1 where that is 0).

    Infinite when exactly one side is not finite anywhere, so that a NaN never passes as equal."""
    return _relative_error(result.detach().double(), reference.detach().double())


def _relative_error(result: Any, reference: Any) -> float:
    if result.shape != reference.shape:
        return float("inf")
    if result.numel() == 0:
        return 0.0
    if not torch.isfinite(result).all() or not torch.isfinite(reference).all():
        return float("inf")
    scale = reference.abs().max().item() or 1.0
    return float((result - reference).abs().max().item() / scale)
