"""Every forward row of the tile table beside the search that its rows come from, as a table in Markdown:

    python tests/kernels/tile_rows.py            # all rows: 450 kernels or so to compile
    python tests/kernels/tile_rows.py 89 120     # those of some architectures, for the rest another day

The search compiles the tiles of `tiles.candidates` for bfloat16, causal, at the head_dim 8 below the row's width. That
is the hardest that has this width: as much is computed, and loads and stores of its last part, half used, need a mask.
At the width itself the row's own tile is compiled alone, to see that it spills nothing there either. Searched are the
tiles that read as the row's does, by pointers or by descriptors: what a descriptor costs, which each block first writes
to memory, no bound knows, so that only rows that are measured (9.0) have them.

A row takes a minute or more the first time; what has been compiled is kept (andrea_bench/inspect/cache.py)."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from andrea_kernels.flash import tiles

from andrea_bench.inspect.cache import AnalysisCache
from andrea_bench.inspect.facts import Facts
from andrea_bench.inspect.pipeline import Options
from andrea_bench.inspect.survey import launch_facts
from andrea_bench.inspect.tile_search import search
from andrea_bench.kernel import TritonLaunch, find_kernel
from andrea_bench.problem import Problem

GPUS = {80: "a100_sxm4_80gb", 89: "rtx_4090", 90: "h200_sxm", 100: "b200", 120: "rtx_5090"}
FORWARD_ROWS = [(architecture, width) for architecture, width, part in tiles.TABLE if part == "forward"]
# Rows of these are measured: a time decides there, and the bound, which knows no overlap, is only printed.
MEASURED = (90,)
KERNEL = find_kernel("attention", "triton_exact")
HEAD = """\
| architecture | width | tile | searched | least spilled | row spills | at width | bound | least bound | ratio | by |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


@dataclass(frozen=True)
class Row:
    """A row of the table beside its search.

    head_dim: of the search. tried: tiles that were compiled, of these numbers of stages; fit: those that an SM can
    hold; clean: those of them that spill no more than the least, least_spill_bytes. bound and spill_bytes: of the row's
    own tile, in clocks of an SM for 1024 pairs and in bytes stored and loaded; None where it does not fit. least: the
    least bound of the clean ones. width_spill_bytes: the row's own at head_dim = width."""

    architecture: int
    width: int
    tile: tiles.Tile
    head_dim: int
    tried: int
    stages: tuple[int, ...]
    fit: int
    clean: int
    least_spill_bytes: int
    bound: float | None
    least: float | None
    spill_bytes: int | None
    width_spill_bytes: int | None

    def __str__(self) -> str:
        """As a line of the table in Markdown."""
        ratio = f"{self.bound / self.least:.2f}" if self.bound and self.least else "-"
        stages = ", ".join(map(str, self.stages))
        cells = (
            f"{self.architecture // 10}.{self.architecture % 10}",
            self.width,
            str(self.tile).removeprefix("Tile"),
            f"{self.tried} tiles of {stages} stages at {self.head_dim}, {self.fit} fit",
            f"{self.least_spill_bytes} bytes, by {self.clean}",
            f"{self.spill_bytes} bytes",
            f"{self.width_spill_bytes} bytes",
            self.bound,
            self.least,
            ratio,
            "measured" if self.architecture in MEASURED else "compiled",
        )
        return f"| {' | '.join(map(str, cells))} |"


def row_beside_search(architecture: int, width: int, keep: Callable[[TritonLaunch], bool] = lambda launch: True) -> Row:
    """The row among the tiles that a search tries (those alone whose launches `keep` keeps)."""
    options = Options(cache=AnalysisCache())
    chosen, gpu = tiles.TABLE[architecture, width, "forward"], GPUS[architecture]
    problem = Problem(n_head=12, head_dim=width - 8, seq_len=4096, dtype="bfloat16")

    def kept(launch: TritonLaunch) -> bool:
        return launch.constexprs["DESCRIPTORS"] == chosen.descriptors and keep(launch)

    tried = search(KERNEL, problem, gpu, keep=kept, options=options)
    fitting = [one for one in tried if one.bound is not None]
    least_spill = min((one.spill_bytes or 0 for one in fitting), default=0)
    clean = [one for one in fitting if one.spill_bytes == least_spill]
    own = next((one for one in tried if f"{chosen}," in one.row), None)
    if own is None:
        raise ValueError(f"{chosen}, the row of {architecture} at {width}, is none of the tiles that were searched")
    stages = tuple(sorted({one.stages for one in tried}))
    least = min((one.bound for one in clean if one.bound), default=None)
    return Row(
        architecture, width, chosen, width - 8, len(tried), stages, len(fitting), len(clean), least_spill, own.bound,
        least, own.spill_bytes, spilled(facts_of(architecture, width)),
    )  # fmt: skip


def facts_of(architecture: int, head_dim: int) -> Facts:
    """What the launch with the tile of now compiles to."""
    problem = Problem(n_head=12, head_dim=head_dim, seq_len=4096, dtype="bfloat16")
    assert KERNEL.launches is not None
    launches = KERNEL.launches(problem, f"{architecture // 10}.{architecture % 10}")
    options = Options(cache=AnalysisCache())
    (facts,) = launch_facts(KERNEL.name, problem, GPUS[architecture], launches, options)
    return facts


def spilled(facts: Facts) -> int | None:
    """Bytes stored and loaded, None where that is not known."""
    if facts.spill_store_bytes is None or facts.spill_load_bytes is None:
        return None
    return facts.spill_store_bytes + facts.spill_load_bytes


def main(wanted: list[int]) -> None:
    print(HEAD, flush=True)
    for architecture, width in FORWARD_ROWS:
        if architecture in wanted:
            print(row_beside_search(architecture, width), flush=True)


if __name__ == "__main__":
    main([int(name) for name in sys.argv[1:]] or list(GPUS))
