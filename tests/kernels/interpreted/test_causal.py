"""The causal mask: aligned bottom-right, there at every length, and looked at on the diagonal alone."""

from collections import Counter
from typing import Any

import pytest
import torch
from andrea_kernels import attention
from andrea_kernels.devices import interpreted
from andrea_kernels.flash.tiles import Tile
from attention_criterion import (
    DIRECTIONS,
    NEEDS_DESCRIPTORS,
    assert_no_worse,
    by_torch,
    compare,
    every_launch_with,
    inputs,
    upstream_of,
    with_gradients,
)
from torch import Tensor

from andrea_bench.measure import reference
from andrea_bench.measure.reference import relative_error

TWO_DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attention(q, k, v, causal=True)


@TWO_DTYPES
@pytest.mark.parametrize(("seq_len", "kv_len"), [(1, 203), (17, 128), (113, 114), (203, 1), (129, 128), (200, 72)])
def test_causal_is_aligned_bottom_right(device: str, seq_len: int, kv_len: int, dtype: torch.dtype) -> None:
    tensors = inputs(device, dtype, seq_len=seq_len, kv_len=kv_len, head_dim=40)
    compare(tensors, causal=True, backward=True)
    out = attention(*tensors, causal=True)
    # The last query sees every key; one that sees none gives 0, not NaN.
    last = by_torch(tensors[0][:, :, -1:], *tensors[1:], causal=False)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-3
    torch.testing.assert_close(out[:, :, -1:], last, rtol=tolerance, atol=tolerance)
    assert (out[:, :, : max(seq_len - kv_len, 0)] == 0).all()


@TWO_DTYPES
@pytest.mark.parametrize(("seq_len", "kv_len"), [(3, 1), (20, 13), (130, 60)])
def test_queries_that_see_no_key_take_no_part(device: str, seq_len: int, kv_len: int, dtype: torch.dtype) -> None:
    """Their out and dq are 0, and all other results are what the other queries alone give."""
    q, k, v = inputs(device, dtype, seq_len=seq_len, kv_len=kv_len, head_dim=24)
    upstream, keyless = upstream_of(q), seq_len - kv_len
    out, dq, dk, dv = with_gradients(causal_attention, (q, k, v), upstream)
    assert (out[:, :, :keyless] == 0).all() and (dq[:, :, :keyless] == 0).all()
    others = (q[:, :, keyless:], k, v)  # as many queries as keys: no alignment to choose
    right = with_gradients(
        lambda *t: reference.attention(*t, causal=True), tuple(t.double() for t in others), upstream[:, :, keyless:]
    )
    usual = with_gradients(lambda *t: by_torch(*t, causal=True), others, upstream[:, :, keyless:])
    assert_no_worse((out[:, :, keyless:], dq[:, :, keyless:], dk, dv), right, usual)


@pytest.mark.parametrize("seq_len", [48, 64, 128, 256])
@pytest.mark.parametrize("tile", [Tile(64, 32, 4, 2), Tile(64, 64, 4, 2), Tile(128, 32, 4, 2)], ids=str)
def test_the_mask_stays_where_tiles_divide_the_length(device: str, seq_len: int, tile: Tile) -> None:
    tensors = inputs(device, torch.float32, n_head=1, seq_len=seq_len, head_dim=16, scale=2.0)
    upstream = upstream_of(tensors[0])
    with every_launch_with(tile):
        compare(tensors, causal=True, backward=True)
        masked = with_gradients(causal_attention, tensors, upstream)
        unmasked = with_gradients(attention, tensors, upstream)
    # The check has teeth: without its mask the kernel would fail it by far, and so would each gradient.
    assert all(relative_error(without, right.double()) > 0.1 for without, right in zip(unmasked, masked, strict=True))


# ---- which tiles are read, and which are masked ----------------------------------------------------------------
READS = pytest.mark.parametrize(
    "tile",
    [
        Tile(64, 32, 4, 2),
        pytest.param(Tile(64, 32, 4, 2, descriptors=True), marks=NEEDS_DESCRIPTORS),
    ],
    ids=["pointers", "descriptors"],
)
LENGTHS = pytest.mark.parametrize(("seq_len", "kv_len"), [(128, 128), (100, 132), (160, 128)])


def poisoned(tensor: Tensor, rows: slice) -> Tensor:
    """A copy with NaN in these rows of each head."""
    copy = tensor.clone()
    copy[:, :, rows] = float("nan")
    return copy


@READS
@LENGTHS
def test_tiles_above_the_diagonal_are_not_read(device: str, tile: Tile, seq_len: int, kv_len: int) -> None:
    """NaN in K and V beyond what the first tile of queries sees: masked it would still reach them, as 0 * NaN."""
    q, k, v = inputs(device, torch.float16, n_head=1, seq_len=seq_len, kv_len=kv_len, head_dim=16)
    seen = slice(tile.block_m + kv_len - seq_len, None)
    with every_launch_with(tile):
        clean = with_gradients(causal_attention, (q, k, v), upstream_of(q))
        broken = with_gradients(causal_attention, (q, poisoned(k, seen), poisoned(v, seen)), upstream_of(q))
    for one, same in zip(broken[:2], clean[:2], strict=True):  # out and dq
        assert one[:, :, : tile.block_m].isfinite().all()
        assert torch.equal(one[:, :, : tile.block_m], same[:, :, : tile.block_m])
        assert one[:, :, tile.block_m :].isnan().all()  # each of these queries sees a poisoned key


@READS
@LENGTHS
def test_tiles_before_the_diagonal_are_not_read_for_dk_and_dv(
    device: str, tile: Tile, seq_len: int, kv_len: int
) -> None:
    """NaN in Q and dO of the first tile of queries, which sees none of the keys after its diagonal block."""
    q, k, v = inputs(device, torch.float16, n_head=1, seq_len=seq_len, kv_len=kv_len, head_dim=16)
    first, edge, upstream = slice(tile.block_m), tile.block_m + kv_len - seq_len, upstream_of(q)
    with every_launch_with(tile):
        clean = with_gradients(causal_attention, (q, k, v), upstream)
        broken = with_gradients(causal_attention, (poisoned(q, first), k, v), poisoned(upstream, first))
    for one, same in zip(broken[2:], clean[2:], strict=True):  # dk and dv
        assert one[:, :, edge:].isfinite().all()
        assert torch.equal(one[:, :, edge:], same[:, :, edge:])
        assert one[:, :, :edge].isnan().all()  # each of these keys is seen by a poisoned query


@pytest.mark.skipif(not interpreted(), reason="the interpreter alone can be watched")
def test_only_tiles_on_the_diagonal_are_masked(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from andrea_kernels.flash import backward, forward

    masked: Counter[tuple[int, int]] = Counter()  # by the first query and the first key of the tile
    original = forward.visible_keys

    def watched(rows: Any, keys: Any, *rest: Any) -> Any:
        masked[int(rows.handle.data.min()), int(keys.handle.data.min())] += 1
        return original(rows, keys, *rest)

    for module in (forward, backward):
        monkeypatch.setattr(module, "visible_keys", watched)
    tile = Tile(64, 32, 4, 2)
    tensors = inputs(device, torch.float16, n_head=1, seq_len=192, head_dim=16)
    with every_launch_with(tile):
        with_gradients(causal_attention, tensors, upstream_of(tensors[0]))
    sees = torch.ones(192, 192).tril().unflatten(0, (-1, tile.block_m)).unflatten(2, (-1, tile.block_n))
    pairs = sees.sum((1, 3))  # (tiles of queries, tiles of keys): how many of a tile's pairs are seen
    some, every = pairs > 0, pairs == tile.block_m * tile.block_n
    diagonal = [(row * tile.block_m, key * tile.block_n) for row, key in (some & ~every).nonzero().tolist()]
    assert masked == Counter(diagonal * len(DIRECTIONS))
