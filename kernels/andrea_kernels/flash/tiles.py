"""Tile sizes: one table, keyed by (architecture, computed width, direction).

BLOCK_M is the tile of queries, BLOCK_N of keys.
"""

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

    direction: "forward", "dq" or "dkv"."""
    if direction == "forward":
        return Tile(128, 64, 4 if width <= 64 else 8, 2)
    return Tile(64, 64, 4, 2)
