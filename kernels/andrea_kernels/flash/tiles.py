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


# (block_m, block_n, warps). None below 64 x 32; a warp does 16 rows of a matrix instruction or more, and so many
# scores as leave room in its registers.
SHAPES = {
    "forward": [(128, 128, 8), (128, 64, 8), (128, 64, 4), (128, 32, 4), (64, 64, 4), (64, 32, 4)],
    "dq": [(128, 128, 8), (128, 64, 8), (128, 32, 8), (128, 32, 4), (64, 64, 4), (64, 32, 4)],
    "dkv": [(64, 128, 8), (32, 128, 8), (32, 128, 4), (128, 64, 4), (64, 64, 4), (32, 64, 4)],
}
