"""Tile sizes of decode: one table, keyed by (architecture, computed width, bytes of an element)."""

from typing import NamedTuple

from andrea_kernels.tried import Tried

Key = tuple[int, int, int]  # architecture (89 for 8.9), widest computed width, bytes of an element


class Tile(NamedTuple):
    """Keys of a tile, its rows at most (more query rows are more tiles), warps of a block, stages of the load
    pipeline."""

    block_n: int
    most_rows: int
    warps: int
    stages: int


# Reading is all that takes time, so as many bytes of K and V are in flight as leave room for two blocks in an SM's
# shared memory (8.0 has 164 KiB of it, 9.0 and 10.0 228, the others 100). Compiled (8.0, 8.6, 9.0, 10.0, 12.0) within
# shared memory: 16 bits at 72 (tests/kernels/test_projection_compile.py) and at 256 with all its rows, where 10.0
# spills 4 bytes and 8.6 spills 8; tf32 and float32 at 256, without spills. None is measured.
TABLE: dict[Key, Tile] = {
    (80, 128, 2): Tile(64, 64, 4, 3),
    (80, 256, 2): Tile(64, 32, 4, 2),
    (80, 256, 4): Tile(16, 16, 4, 3),
    (86, 64, 2): Tile(64, 64, 4, 3),
    (86, 128, 2): Tile(64, 64, 4, 2),
    (86, 256, 2): Tile(32, 32, 4, 2),
    (86, 256, 4): Tile(16, 16, 4, 2),
    (90, 128, 2): Tile(64, 64, 4, 3),  # as 8.0
    (90, 256, 2): Tile(64, 32, 4, 2),
    (90, 256, 4): Tile(16, 16, 4, 3),
    (120, 64, 2): Tile(64, 64, 4, 3),  # as 8.6
    (120, 128, 2): Tile(64, 64, 4, 2),
    (120, 256, 2): Tile(32, 32, 4, 2),
    (120, 256, 4): Tile(16, 16, 4, 2),
}
_tried = Tried[Tile]()
trying = _tried.trying  # within it, `tile` gives the tile that is tried
LOWEST_ARCHITECTURE = min(architecture for architecture, _, _ in TABLE)


def tile(architecture: int, width: int, element_bytes: int) -> Tile:
    """The tile for a GPU of compute capability `architecture` (89 for 8.9) at a computed width. One that is not there,
    or whose rows are not wide enough, takes the nearest lower architecture's."""
    if _tried.tile is not None:
        return _tried.tile
    architecture = max(architecture, LOWEST_ARCHITECTURE)
    wide_enough = [key for key in TABLE if key[0] <= architecture and key[1] >= width and key[2] == element_bytes]
    return TABLE[max(wide_enough, key=lambda key: (key[0], -key[1]))]


def candidates(architecture: int, width: int, element_bytes: int) -> list[Tile]:
    """The tiles that a search looks at: those of the table's, with other keys, warps and stages. Exact float32 products
    are one instruction each, so that large tiles take minutes to compile."""
    present = tile(architecture, width, element_bytes)
    keys = (32, 64, 128) if element_bytes == 2 else (16, 32)
    return [
        present._replace(block_n=block_n, warps=warps, stages=stages)
        for block_n in keys
        for warps in (4, 8)
        for stages in (2, 3, 4)
    ]
