"""When attention counts as right: no worse than twice torch's own error in the same dtype, by float64."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest
import torch
from andrea_kernels import attention
from andrea_kernels.devices import interpreted
from andrea_kernels.flash import tiles
from andrea_kernels.flash.tiles import Tile
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from andrea_bench.measure import reference
from andrea_bench.measure.reference import relative_error

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
DIRECTIONS = ("forward", "dq", "dkv")  # that tiles are chosen for
# Where torch is exact by luck (one key, few terms) twice its error is nothing, yet one rounding of a result costs
# half an epsilon; as many again for the weights, rounded before P V, and for dS, rounded before dS K.
FLOOR_EPSILONS = 4

NEEDS_DESCRIPTORS = pytest.mark.skipif(
    not interpreted() and torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 9,
    reason="tensor descriptors are copied by a unit that compute capability 9.0 brought",
)

Inputs = tuple[Tensor, Tensor, Tensor]


def normal(*shape: int, dtype: torch.dtype, device: str, seed: int = 0, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) * scale).to(device, dtype)


def inputs(
    device: str, dtype: torch.dtype, *, batch: int = 1, n_head: int = 2, n_kv_head: int = 1, seq_len: int,
    kv_len: int | None = None, head_dim: int, seed: int = 0, scale: float = 1.0,
) -> Inputs:  # fmt: skip
    kv_len = seq_len if kv_len is None else kv_len
    return (
        normal(batch, n_head, seq_len, head_dim, dtype=dtype, device=device, seed=3 * seed, scale=scale),
        normal(batch, n_kv_head, kv_len, head_dim, dtype=dtype, device=device, seed=3 * seed + 1, scale=scale),
        normal(batch, n_kv_head, kv_len, head_dim, dtype=dtype, device=device, seed=3 * seed + 2, scale=scale),
    )


def upstream_of(q: Tensor) -> Tensor:
    """A gradient of the output, of q's shape and dtype."""
    return normal(*q.shape, dtype=q.dtype, device=str(q.device), seed=99)


def by_torch(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float | None = None) -> Tensor:
    """torch's own attention, aligned bottom-right, 0 for queries that see no key."""
    mask = None
    if causal:
        rows, keys = torch.arange(q.shape[2], device=q.device), torch.arange(k.shape[2], device=q.device)
        mask = keys[None, :] <= rows[:, None] + (k.shape[2] - q.shape[2])
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
    return out if mask is None else torch.where(mask.any(-1)[:, None], out, torch.zeros_like(out))


def with_gradients(attend: Callable[..., Tensor], tensors: Inputs, upstream: Tensor) -> list[Tensor]:
    """out, dq, dk and dv."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    out = attend(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, upstream.to(out.dtype))]


@contextmanager
def every_launch_with(tile: Tile) -> Iterator[None]:
    """Within it the forward and backward launches of attention take this tile."""
    with ExitStack() as stack:
        for direction in DIRECTIONS:
            stack.enter_context(tiles.trying(direction, tile))
        yield


def compare(
    tensors: Inputs, *, causal: bool, scale: float | None = None, variant: str = "exact", backward: bool = False,
    floors: tuple[float, ...] = (0.0,) * 4,
) -> None:  # fmt: skip
    """Assert that the kernel's output (and gradients) err at most twice as much as torch's, plus the floor, plus
    the floors of one's own for out, dq, dk and dv."""
    wide = tuple(tensor.double() for tensor in tensors)

    def mine(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, causal=causal, scale=scale, variant=variant)

    def exact(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return reference.attention(q, k, v, causal=causal, scale=scale)

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return by_torch(q, k, v, causal=causal, scale=scale)

    if backward:
        upstream = upstream_of(tensors[0])
        answers = [with_gradients(f, t, upstream) for f, t in ((mine, tensors), (exact, wide), (plain, tensors))]
    else:
        answers = [[f(*t)] for f, t in ((mine, tensors), (exact, wide), (plain, tensors))]
    assert_no_worse(*answers, floors)


def assert_no_worse(
    mine: Sequence[Tensor], right: Sequence[Tensor], usual: Sequence[Tensor], floors: Sequence[float] = (0.0,) * 4
) -> None:
    """Of out (dq, dk, dv): ours, float64's and torch's own."""
    dtype = usual[0].dtype
    for name, one, true, plain, more in zip(("out", "dq", "dk", "dv"), mine, right, usual, floors, strict=False):
        allowed = 2 * relative_error(plain, true) + FLOOR_EPSILONS * torch.finfo(dtype).eps + more
        error = relative_error(one, true)
        assert math.isfinite(allowed), f"{name}: torch's own is not finite, nothing would fail"
        assert one.dtype == dtype
        assert error <= allowed, f"{name}: relative error {error:.2e}, allowed {allowed:.2e}"


def scores_and_weights(q: Tensor, k: Tensor, *, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """scale Q K^T and its softmax, (batch, n_head, seq_len, kv_len) each, with a key head for each query head."""
    scores = scale * q @ k.mT
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(k.shape[2] - q.shape[2] + 1) if causal else scores.isnan()
    return scores, scores.masked_fill(hidden, float("-inf")).softmax(-1)


def cancelled(tensors: Inputs, upstream: Tensor, *, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """By how much what is summed in dq and in dk is larger than the largest dq and dk, of each sequence: (batch,).

    dS = P (dP - delta) is known to epsilons of dP and of delta, however little is left of them: where a row sees one
    key alone it is 0. So gradients are measured by what is summed in them."""
    q, k, v = wide = tuple(tensor.double() for tensor in tensors)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    _, weights = scores_and_weights(q, k, causal=causal, scale=scale)
    dweights = upstream.double() @ v.mT
    summed = weights * (dweights.abs() + (weights * dweights).sum(-1, keepdim=True).abs())
    terms = (scale * summed @ k.abs(), (scale * summed.mT @ q.abs()).unflatten(1, (-1, group)).sum(2))
    right = with_gradients(lambda *t: reference.attention(*t, causal=causal, scale=scale), wide, upstream)
    of_dq, of_dk = (
        term.flatten(1).amax(1) / true.abs().flatten(1).amax(1) for term, true in zip(terms, right[1:3], strict=True)
    )
    return of_dq, of_dk


def floors_of_large_inputs(tensors: Inputs, *, causal: bool) -> tuple[float, float, float, float]:
    """What large inputs, of one sequence, cost out, dq, dk and dv, relative to the largest of each: a score is known
    to a float32 epsilon of its size, and a weight errs by as much as its score."""
    q, k, _ = (tensor.double() for tensor in tensors)
    scale = q.shape[3] ** -0.5
    scores, _ = scores_and_weights(q, k.repeat_interleave(q.shape[1] // k.shape[1], 1), causal=causal, scale=scale)
    of_weights = torch.finfo(torch.float32).eps * scores.abs().max().item()
    floor = FLOOR_EPSILONS * torch.finfo(tensors[0].dtype).eps + of_weights
    dq, dk = (floor * ratio.item() for ratio in cancelled(tensors, upstream_of(tensors[0]), causal=causal, scale=scale))
    return of_weights, dq, dk, of_weights
