"""Tile sizes: one table, keyed by (architecture, computed width, direction).

BLOCK_M is the tile of queries, BLOCK_N of keys.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

Key = tuple[int, int, str]  # architecture (89 for 8.9), widest computed width, direction


class Tile(NamedTuple):
    """block_m queries by block_n keys, warps of a block, stages of the load pipeline; descriptors: whether the loop
    reads its tiles by tensor descriptors where the tensors are aligned for them (compute capability 9.0 and newer)."""

    block_m: int
    block_n: int
    warps: int
    stages: int
    descriptors: bool = False

    def __str__(self) -> str:
        """As a row of the table writes it."""
        sizes = ", ".join(map(str, self[:4]))
        return f"Tile({sizes}, descriptors=True)" if self.descriptors else f"Tile({sizes})"


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


# (architecture, widest computed width that the row is for, direction) -> tile. A row serves its width and those
# between it and the next narrower row's.
#
# Reasons. Rows of 9.0 are measured: on an H200 (driver 580.159.04, torch 2.11, Triton 3.6, 2026-11-29) with bfloat16,
# batch 2, 16 heads, 4096 long, of the tiles of SHAPES with 2 to 4 stages (backward: 1 to 3) the fastest causal one; at
# widths 64, 80, 112, 128 and 256 forward of causal and not together, with descriptors (in a first version of the loop)
# and without. What was measured stands beside the row in TFLOP/s, causal first, by the project's FLOP count (dkv and
# dq: of their own products).
# All other rows are compiled, by `python -m andrea_bench.inspect.tile_search triton_exact` for bfloat16, causal, 4096
# long, of the tiles that `candidates` gives without descriptors: of those without spills and within 10 % of the least
# bound the one with 8 warps on an SM or more, then the largest. `python tests/kernels/tile_rows.py` prints forward rows
# beside that search. Units that bind: exp (to width 64 on 10.0), shared memory (wider there, and 8.0), tensor cores
# (8.6, 8.9, 12.0: all tiles tie). By descriptors the bound is lower on 10.0 (at head_dim 120: 65 clocks of an SM for
# 1024 pairs, 105 by pointers); what writing them costs it does not know, so that awaits a measurement.
TABLE: dict[Key, Tile] = {
    # 8.0: 4 warps of 32 rows read a key tile from shared memory half as often as 8 of 16; where that spills, 8.
    (80, 16, "forward"): Tile(128, 128, 8, 2),  # three stages spill at head_dim 8
    (80, 32, "forward"): Tile(128, 64, 4, 3),
    (80, 96, "forward"): Tile(128, 32, 4, 3),
    (80, 112, "forward"): Tile(64, 32, 4, 1),  # three parts; all others spill 8 bytes or more at head_dim 104
    (80, 192, "forward"): Tile(128, 64, 8, 2),
    (80, 256, "forward"): Tile(64, 64, 4, 2),
    # 8.9: 99 KiB of shared memory a block.
    (89, 16, "forward"): Tile(128, 128, 8, 2),
    (89, 96, "forward"): Tile(128, 64, 8, 2),
    (89, 112, "forward"): Tile(128, 64, 8, 3),  # two stages spill 24 bytes, stored and loaded, at head_dim 104
    (89, 128, "forward"): Tile(128, 64, 8, 2),
    (89, 256, "forward"): Tile(64, 32, 4, 2),
    # 9.0: mostly one warpgroup of 64 rows, so that several blocks share an SM, where the bound, which knows no overlap
    # of blocks, would have taken 128 x 128 (at width 64 measured at 294).
    (90, 16, "forward"): Tile(64, 128, 4, 3),  # 135
    (90, 64, "forward"): Tile(64, 64, 4, 3),  # 32: 234, 48: 265, 64: 347, not causal 427
    (90, 80, "forward"): Tile(128, 64, 4, 3, descriptors=True),  # 72: 268, 357; 80: 307, 402 (by pointers 317 causal)
    (90, 96, "forward"): Tile(64, 64, 4, 3),  # 351
    (90, 112, "forward"): Tile(64, 64, 4, 2, descriptors=True),  # 326, 364; 128 x 64 reaches 428 but spills
    (90, 128, "forward"): Tile(64, 64, 4, 3, descriptors=True),  # 431, 508 (by pointers 432, 405)
    (90, 224, "forward"): Tile(128, 64, 8, 3),  # 160: 399, 192: 448, 224: 412
    (90, 256, "forward"): Tile(128, 64, 8, 2, descriptors=True),  # 429, 526 (by pointers 414, 390)
    # 10.0: 4 warps, as one instruction does all 128 rows; more would only exchange more.
    (100, 32, "forward"): Tile(128, 128, 8, 3),
    (100, 96, "forward"): Tile(128, 64, 4, 3),
    (100, 192, "forward"): Tile(128, 64, 8, 3),  # 4 warps spill at head_dim 104
    (100, 256, "forward"): Tile(128, 64, 8, 2),
    # 12.0: as 8.9, but its assembler needs more registers.
    (120, 48, "forward"): Tile(128, 128, 8, 2),
    (120, 96, "forward"): Tile(128, 64, 8, 2),
    (120, 112, "forward"): Tile(64, 32, 4, 1),  # two stages spill 16 bytes, three 36 without a mask
    (120, 128, "forward"): Tile(128, 64, 8, 2),
    (120, 256, "forward"): Tile(64, 32, 4, 2),
    # Backward: dkv holds two accumulators of block_n rows, dq one of block_m, and each two tiles of its own.
    (80, 64, "dkv"): Tile(64, 128, 8, 2),
    (80, 96, "dkv"): Tile(32, 128, 8, 2),
    (80, 112, "dkv"): Tile(32, 64, 4, 2),
    (80, 128, "dkv"): Tile(32, 128, 8, 2),
    (80, 192, "dkv"): Tile(32, 64, 4, 2),
    (80, 256, "dkv"): Tile(32, 32, 4, 2),  # what 99 KiB of shared memory hold
    (80, 64, "dq"): Tile(128, 64, 8, 2),
    (80, 96, "dq"): Tile(128, 32, 8, 2),
    (80, 112, "dq"): Tile(64, 32, 4, 2),
    (80, 128, "dq"): Tile(128, 32, 8, 2),
    (80, 224, "dq"): Tile(64, 32, 4, 2),  # one stage spills 23 kB at 208
    (80, 256, "dq"): Tile(64, 32, 4, 1),
    (90, 32, "dkv"): Tile(128, 64, 4, 3),  # 295
    (90, 80, "dkv"): Tile(128, 64, 4, 2),  # 64: 366, 80: 333
    (90, 96, "dkv"): Tile(64, 64, 4, 1),  # 325
    (90, 112, "dkv"): Tile(128, 128, 8, 2),  # 283
    (90, 128, "dkv"): Tile(64, 128, 8, 1),  # 373
    (90, 160, "dkv"): Tile(64, 128, 8, 3),  # 326
    (90, 192, "dkv"): Tile(64, 128, 8, 2),  # 318
    (90, 256, "dkv"): Tile(64, 64, 8, 2),  # 194
    (90, 112, "dq"): Tile(64, 64, 4, 3),  # 32: 359, 64: 509, 80: 470, 96: 495, 112: 478
    (90, 160, "dq"): Tile(128, 64, 8, 3),  # 128: 539, 160: 500
    (90, 192, "dq"): Tile(128, 64, 8, 2),  # 467
    (90, 256, "dq"): Tile(128, 32, 8, 2),  # 372; 128 x 64 reaches 373 and spills
    (100, 96, "dkv"): Tile(64, 128, 8, 2),
    (100, 112, "dkv"): Tile(32, 128, 8, 2),  # three parts: 64 x 128 needs more tensor memory than there is
    (100, 128, "dkv"): Tile(64, 128, 8, 2),
    (100, 256, "dkv"): Tile(64, 64, 8, 1),  # 4 warps spill up to 600 bytes, larger tiles do not fit
    (100, 96, "dq"): Tile(128, 64, 8, 2),
    (100, 112, "dq"): Tile(128, 32, 8, 2),  # as in dkv
    (100, 128, "dq"): Tile(128, 64, 8, 2),
    (100, 224, "dq"): Tile(64, 64, 4, 1),  # 128 x 64 needs more tensor memory in three parts (168, 176, 200 to 224)
    (100, 256, "dq"): Tile(128, 64, 8, 1),  # 64 x 64 spills 208 bytes
    (120, 64, "dkv"): Tile(64, 128, 8, 2),
    (120, 96, "dkv"): Tile(32, 128, 8, 2),
    (120, 112, "dkv"): Tile(32, 64, 4, 2),
    (120, 128, "dkv"): Tile(32, 128, 8, 2),
    (120, 224, "dkv"): Tile(32, 64, 4, 2),  # at 208 spills 2.5 kB; 32 x 32 with one stage 28 kB
    (120, 256, "dkv"): Tile(32, 32, 4, 1),
    (120, 64, "dq"): Tile(128, 64, 8, 2),
    (120, 96, "dq"): Tile(128, 32, 8, 2),
    (120, 112, "dq"): Tile(64, 32, 4, 2),
    (120, 128, "dq"): Tile(128, 32, 8, 2),
    (120, 224, "dq"): Tile(64, 32, 4, 2),
    (120, 256, "dq"): Tile(64, 32, 4, 1),
}
# 8.6 has 8.9's limits and code, and 8.0's shared memory it has not.
SAME_AS = {86: 89}


def tile(architecture: int, width: int, direction: str, *, float32: bool = False) -> Tile:
    """The tile for a GPU of compute capability `architecture` (89 for 8.9) at a computed width.

    direction: "forward", "dq" or "dkv". A GPU that the table does not know takes the nearest lower architecture's
    row, as does one whose rows are not wide enough."""
    if direction in _tried:
        return _tried[direction]
    if float32:
        return next(chosen for widest, chosen in FLOAT32_TILES.items() if width <= widest)
    architecture = SAME_AS.get(architecture, architecture)
    # An architecture that has a few rows only takes, at widths beyond them, what the next lower one has.
    wide_enough = [key for key in TABLE if key[2] == direction and key[1] >= width and key[0] <= architecture]
    return TABLE[max(wide_enough, key=lambda key: (key[0], -key[1]))]


def row_for(architecture: int, width: int, direction: str, chosen: Tile) -> tuple[Key, str]:
    """Where in TABLE the tile for this place stands, and `chosen` as the row to be pasted there, which says what widths
    it would serve. Arguments as of `tile`."""
    architecture = SAME_AS.get(architecture, architecture)
    narrower = max((w for a, w, d in TABLE if (a, d) == (architecture, direction) and w < width), default=0)
    above = f"above {narrower} " if narrower else ""
    row = f'({architecture}, {width}, "{direction}"): {chosen},  # widths {above}up to {width}'
    return (architecture, width, direction), row


# float32, by width, for all: twice the shared memory, and exact products run on the FMA units, one instruction for
# each of a thread's products, so that large tiles take minutes to compile.
FLOAT32_TILES = {64: Tile(64, 32, 4, 1), 128: Tile(32, 32, 4, 1), 256: Tile(16, 16, 4, 1)}

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


def candidates(direction: str, architecture: int) -> list[Tile]:
    """The tiles that a search looks at on a GPU of this compute capability."""
    reads = (False, True) if architecture >= FIRST_WITH_DESCRIPTORS else (False,)
    sizes = [(*shape, stages) for shape in SHAPES[direction] for stages in STAGES[direction]]
    if direction == "forward":
        sizes.append(SMALLEST)
    return [Tile(*size, by) for size in sizes for by in reads]


FIRST_WITH_DESCRIPTORS = 90
# Of the load pipeline. Where accumulators and scores fill the registers one stage, which loads nothing ahead, is what
# is left: in forward of the smallest tile alone, in backward, which holds more, of any.
STAGES = {"forward": (2, 3), "dq": (1, 2, 3), "dkv": (1, 2, 3)}
SMALLEST = (64, 32, 4, 1)
# (block_m, block_n, warps). None below 64 x 32 but dkv's, which has two accumulators; a warp does 16 rows of a matrix
# instruction or more, and so many scores as leave room in its registers.
SHAPES = {
    "forward": [(128, 128, 8), (128, 64, 8), (128, 64, 4), (128, 32, 4), (64, 128, 4), (64, 64, 4), (64, 32, 4)],
    "dq": [(128, 128, 8), (128, 64, 8), (128, 32, 8), (128, 32, 4), (64, 128, 4), (64, 64, 4), (64, 32, 4)],
    "dkv": [
        (128, 128, 8), (64, 128, 8), (64, 64, 8), (32, 128, 8), (32, 128, 4), (128, 64, 4), (64, 64, 4), (32, 64, 4),
        (32, 32, 4),
    ],
}  # fmt: skip
