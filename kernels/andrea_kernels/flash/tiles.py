"""Tile sizes: one table, keyed by (architecture, computed width, direction).

BLOCK_M is the tile of queries, BLOCK_N of keys.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Tile(NamedTuple):
    """block_m queries by block_n keys, warps of a block, stages of the load pipeline."""

    block_m: int
    block_n: int
    warps: int
    stages: int


def parts(head_dim: int, *, padded: bool = False) -> tuple[tuple[int, int], ...]:
    """The (start, width) of the power-of-two parts that a row of head_dim elements is computed in.

    Together they are head_dim rounded up to 16 wide (72: 64 + 16), 240 excepted, whose four parts
    would cost more instructions than one of 256; if padded, one part of the next power of two.
    """
    width = -(-head_dim // 16) * 16
    if padded or width == 240:
        return ((0, max(16, 1 << (head_dim - 1).bit_length())),)
    split, start = [], 0
    for part in (256, 128, 64, 32, 16):
        if width & part:
            split.append((start, part))
            start += part
    return tuple(split)


def computed_width(head_dim: int, *, padded: bool = False) -> int:
    """How wide a row of head_dim is computed."""
    return sum(width for _, width in parts(head_dim, padded=padded))


def tile(architecture: int, width: int, direction: str, *, float32: bool = False) -> Tile:
    """The tile for a GPU of compute capability `architecture` (89 for 8.9) at a computed width.

    direction: "forward", "dq" or "dkv". A GPU that the table does not know takes the nearest lower
    architecture's row."""
    if direction in _tried:
        return _tried[direction]
    if direction == "forward":
        return Tile(128, 64, 4 if width <= 64 else 8, 2)
    return Tile(64, 64, 4, 2)


# What a search is trying at the moment, by direction.
_tried: dict[str, Tile] = {}


@contextmanager
def trying(direction: str, tried: Tile) -> Iterator[None]:
    """Within it, `tile` gives `tried` for that direction."""
    _tried[direction] = tried
    try:
        yield
    finally:
        del _tried[direction]


def candidates(direction: str) -> list[Tile]:
    """The tiles that a search looks at."""
    return [Tile(m, n, warps, stages) for m, n, warps in SHAPES[direction] for stages in (2, 3)]


# The smaller extent of a tile is at least 32, the larger at least 64; 4 warps do at least 16 rows of a matrix
# instruction each, and a warp no more than 32 x 128 scores, which would be all the registers it has.
SHAPES = {
    "forward": [(m, n, w) for m in (64, 128) for n in (32, 64, 128) for w in (4, 8) if 16 * w <= m],
    "dq": [(m, n, w) for m in (64, 128) for n in (32, 64, 128) for w in (4, 8) if 16 * w <= m],
    "dkv": [(m, n, w) for n in (64, 128) for m in (32, 64, 128) for w in (4, 8) if 16 * w <= n],
}
