"""Every forward row of the tile table beside the search that its rows come from, one line each:

    python tests/kernels/tile_rows.py            # all rows
    python tests/kernels/tile_rows.py 89 120     # those of some architectures, for the rest another day

A row takes a minute or more the first time; what has been compiled is kept (andrea_bench/inspect/cache.py)."""

import sys
from dataclasses import dataclass

from andrea_kernels.flash import tiles

from andrea_bench.inspect.cache import AnalysisCache
from andrea_bench.inspect.survey import Options, launch_facts
from andrea_bench.inspect.tile_search import bound, search
from andrea_bench.kernel import find_kernel
from andrea_bench.problem import Problem

GPUS = {80: "a100_sxm4_80gb", 89: "rtx_4090", 90: "h200_sxm", 100: "b200", 120: "rtx_5090"}
FORWARD_ROWS = [(architecture, width) for architecture, width, part in tiles.TABLE if part == "forward"]
# Rows of these are measured: a time decides there, and the bound, which knows no overlap, is only printed.
MEASURED = (90,)


@dataclass(frozen=True)
class Row:
    """A row's tile: its bound in clocks of an SM for 1024 pairs (None where it does not fit), the bytes that it spills,
    and the least bound of the tiles of the search, of those that spill no more than the least."""

    architecture: int
    width: int
    tile: tiles.Tile
    bound: float | None
    spill_bytes: int | None
    least: float

    def __str__(self) -> str:
        ratio = f"{self.bound / self.least:.2f}" if self.bound else "does not fit"
        how = "measured" if self.architecture in MEASURED else "compiled"
        spilled = f"{self.spill_bytes} bytes spilled"
        return f"{self.architecture} {self.width:3} {self.tile}: {ratio} of {self.least}, {spilled}, {how}"


def row_beside_search(architecture: int, width: int, stages: int | None = None) -> Row:
    """The row at the head_dim of its width, among the tiles that a search tries (those of so many stages alone)."""
    kernel, options = find_kernel("attention", "triton_exact"), Options(cache=AnalysisCache())
    problem = Problem(n_head=12, head_dim=width, seq_len=4096, dtype="bfloat16")
    gpu, chosen = GPUS[architecture], tiles.TABLE[architecture, width, "forward"]
    assert kernel.launches is not None
    launches = kernel.launches(problem, f"{architecture // 10}.{architecture % 10}")
    (facts,) = launch_facts(kernel.name, problem, gpu, launches, options)
    found = [t for t in search(kernel, problem, gpu, stages=stages, options=options) if t.bound is not None]
    spilled = None if facts.spill_store_bytes is None else facts.spill_store_bytes + (facts.spill_load_bytes or 0)
    least_spill = min([t.spill_bytes or 0 for t in found], default=0)
    bounds = [t.bound for t in found if t.bound is not None and (t.spill_bytes or 0) == least_spill]
    own = bound(facts, chosen.block_m * chosen.block_n)
    return Row(architecture, width, chosen, own, spilled, min([*bounds, *([own] if own and not bounds else [])]))


if __name__ == "__main__":
    wanted = [int(name) for name in sys.argv[1:]] or list(GPUS)
    for architecture, width in FORWARD_ROWS:
        if architecture in wanted:
            print(row_beside_search(architecture, width), flush=True)
