"""Tile sizes of the projections: one table, keyed by (architecture, kind of element).

A tile of BLOCK_M rows by BLOCK_N columns is summed BLOCK_K at a time; project_per_head has head_dim, rounded up to
16, in place of BLOCK_N. Rows, few as they may be, shrink BLOCK_M.
"""

from typing import NamedTuple

from andrea_kernels.tried import Tried


class Tile(NamedTuple):
    """block_m rows, block_n columns, block_k products at a time, warps of a block, stages of the load pipeline."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int


# Kinds: 16-bit; tf32; float32 multiplied exactly, without tensor cores. 128 x 128 is the least tile whose products
# outweigh its loads from L2 on all of these (128 FLOP a byte in 16 bits); 8 warps hold its float32 accumulators in
# 64 registers a thread. BLOCK_K and stages: as much in flight as leaves room for two blocks in an SM's shared
# memory. None is measured. Compiled (8.0, 8.6, 9.0, 10.0, 12.0), without spills and within shared memory: 16-bit at
# head_dim 64, 72 and 112; tf32 at 64 and 112, and 256 per head; "ieee" at 64. tf32 on 9.0 and 10.0 copies W 4 bytes at
# a time: their instructions for 32-bit operands read both along what is summed, and W lies across it, so that the copy
# turns it; a hint can't help, W stored by columns would.
TILES: dict[int, dict[str, Tile]] = {
    80: {
        "16bit": Tile(128, 128, 32, 8, 4),  # two stages more than 8.6 in 164 KiB
        "tf32": Tile(128, 128, 32, 8, 2),
        "ieee": Tile(64, 64, 16, 4, 3),  # FMA: operands come from registers, so a small tile
    },
    86: {
        "16bit": Tile(128, 128, 32, 8, 3),  # 100 KiB of shared memory
        "tf32": Tile(128, 128, 16, 8, 3),
        "ieee": Tile(64, 64, 16, 4, 3),
    },
    90: {
        "16bit": Tile(128, 128, 64, 8, 3),  # two warpgroups, each wgmma 64 x 128; 96 KiB
        "tf32": Tile(128, 128, 32, 8, 3),
        "ieee": Tile(64, 64, 16, 4, 3),
    },
    100: {
        "16bit": Tile(128, 128, 64, 8, 3),  # tcgen05 128 x 128, accumulators in tensor memory
        "tf32": Tile(128, 128, 32, 8, 3),
        "ieee": Tile(64, 64, 16, 4, 3),
    },
    120: {
        "16bit": Tile(128, 128, 32, 8, 3),  # as 8.9: mma.sync, 100 KiB
        "tf32": Tile(128, 128, 16, 8, 3),
        "ieee": Tile(64, 64, 16, 4, 3),
    },
}


_tried = Tried[Tile]()
trying = _tried.trying  # within it, `tile_for` gives the tile that is tried


def tile_for(architecture: int, kind: str, rows: int) -> Tile:
    """The tile for a GPU of compute capability `architecture` (89 for 8.9; one without a row takes the nearest
    lower one's) and for so many rows, 16 of them at least."""
    known = [one for one, kinds in TILES.items() if one <= architecture and kind in kinds]
    tile = _tried.tile or TILES[max(known, default=min(TILES))][kind]
    return tile._replace(block_m=min(tile.block_m, max(16, 1 << (rows - 1).bit_length())))


def row_for(architecture: int, kind: str, tile: Tile) -> str:
    """The row to be pasted into TILES; of an architecture that is not there, with the key that it needs."""
    row = f'"{kind}": Tile({", ".join(map(str, tile))})'
    return f"{row},  # of {architecture}" if architecture in TILES else f"{architecture}: {{{row}}},"


def candidates(kind: str) -> list[Tile]:
    """The tiles that a search looks at."""
    if kind == "ieee":
        return [Tile(m, n, 16, 4, stages) for m, n in ((128, 64), (64, 64), (64, 32)) for stages in (2, 3)]
    depths, pipelines = ((16, 32), (2, 3)) if kind == "tf32" else ((32, 64), (3, 4))
    return [Tile(m, n, k, warps, stages) for m, n, warps in SHAPES for k in depths for stages in pipelines]


# (block_m, block_n, warps), for tensor cores.
SHAPES = [(128, 256, 8), (128, 128, 8), (128, 128, 4), (128, 64, 4), (64, 128, 4), (64, 64, 4)]
