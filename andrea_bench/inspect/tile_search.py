"""Which tiles a Triton kernel should have on a GPU that is not there, from what they compile to.

Every candidate is compiled; those that spill, or that no SM can hold, drop out (where all spill, the one that
spills least is taken). The bound of a tile is the clocks that an SM needs for one (query, key) pair, by the
busiest of its units and by the issue of instructions, one a clock in each of four sub-partitions. Of the
tiles whose bound is within 10 % of the least, the one with most warps on an SM is taken (up to 8, which hide
latency), then the larger, which reads keys and values less often, then the one with more stages.

Compiled, not measured: a bound knows nothing of latency. `sweep --autotune` searches on the GPU itself.

    python -m andrea_bench.inspect.tile_search triton_exact --gpu l40s --head-dim 64,80 --direction forward
"""

import json
from collections.abc import Callable

import click
import msgspec

from andrea_bench.hardware import find_gpu
from andrea_bench.inspect.cache import AnalysisCache
from andrea_bench.inspect.facts import Facts
from andrea_bench.inspect.pipeline import Options
from andrea_bench.inspect.survey import launch_facts
from andrea_bench.kernel import Candidate, Kernel, TritonLaunch, find_kernel
from andrea_bench.problem import Problem

WITHIN = 1.10  # of the least bound
ENOUGH_WARPS_PER_SM = 8  # two a sub-partition: what FlashAttention-2's own tiles run with
SUB_PARTITIONS = 4
WARP_SIZE = 32


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate and what it compiled to. bound: clocks of one SM for 1024 (query, key) pairs, None where it
    does not compile or does not fit."""

    row: str
    part: str | None
    status: str
    reason: str | None
    area: int
    stages: int
    bound: float | None
    spill_bytes: int | None
    warps_per_sm: int | None


def search(
    kernel: Kernel,
    problem: Problem,
    gpu: str,
    *,
    keep: Callable[[TritonLaunch], bool] = lambda launch: True,
    options: Options | None = None,
) -> list[Tried]:
    """The candidates of `kernel` for a Problem on a GPU of the catalogue (those alone whose launches `keep` keeps),
    best first, part by part."""
    options = options or Options(cache=AnalysisCache())
    assert kernel.candidates is not None
    assert kernel.launches is not None
    capability = find_gpu(gpu).compute_capability
    listed: list[tuple[Candidate, int, int]] = []
    launches = []
    for candidate in kernel.candidates(problem, capability):
        with candidate.use():
            launch = next(one for one in kernel.launches(problem, capability) if one.part == candidate.part)
        if not keep(launch):
            continue
        area = 1
        for extent in launch.tile.values():
            area *= extent
        listed.append((candidate, area, launch.num_stages))
        launches.append(launch)
    facts = launch_facts(kernel.name, problem, gpu, launches, options)
    tried = [_tried(*one, fact) for one, fact in zip(listed, facts, strict=True)]
    parts = dict.fromkeys(one.part for one in tried)
    return [one for part in parts for one in _ranked([t for t in tried if t.part == part])]


def _tried(candidate: Candidate, area: int, stages: int, facts: Facts) -> Tried:
    spilled = None
    if facts.spill_store_bytes is not None and facts.spill_load_bytes is not None:
        spilled = facts.spill_store_bytes + facts.spill_load_bytes
    return Tried(
        row=candidate.row, part=candidate.part, status=facts.status, reason=facts.reason, area=area, stages=stages,
        bound=bound(facts, area), spill_bytes=spilled, warps_per_sm=facts.warps_per_sm,
    )  # fmt: skip


def bound(facts: Facts, area: int) -> float | None:
    """Clocks of one SM for 1024 of the pairs of a tile of `area` pairs; None where that can't be said."""
    if facts.status != "ok" or not facts.warps_per_sm or not facts.loop_instructions or not facts.threads_per_block:
        return None
    assert facts.unit_cycles is not None
    issue = facts.loop_instructions * facts.threads_per_block / WARP_SIZE / SUB_PARTITIONS
    return round(1024 * max(issue, *(c for c in facts.unit_cycles.values() if c is not None)) / area, 2)


def _ranked(tried: list[Tried]) -> list[Tried]:
    """Best first, as the module's text says; those without a bound last."""
    usable = [t for t in tried if t.bound is not None]
    least_spill = min((t.spill_bytes or 0 for t in usable), default=0)
    clean = [t for t in usable if t.spill_bytes == least_spill]
    least = min((t.bound for t in clean if t.bound is not None), default=0.0)

    def order(t: Tried) -> tuple[float, ...]:
        if t.bound is None:
            return (2,)
        if t.spill_bytes != least_spill:
            return 1, t.spill_bytes or 0, t.bound
        within = t.bound <= WITHIN * least
        warps = min(t.warps_per_sm or 0, ENOUGH_WARPS_PER_SM)
        return (0, 0, -warps, -t.area, -t.stages) if within else (0, 1, t.bound)

    return sorted(tried, key=order)


@click.command
@click.argument("kernel")
@click.option("--gpu", required=True, help="A name of the catalogue.")
@click.option("--head-dim", "head_dims", required=True, help="Comma-separated.")
@click.option("--direction", default="forward", help="forward or backward.")
@click.option("--dtype", default="bfloat16")
@click.option("--stages", type=int, default=None, help="Of the load pipeline; default: all that are tried.")
def main(kernel: str, gpu: str, head_dims: str, direction: str, dtype: str, stages: int | None) -> None:
    """Print every candidate of KERNEL, of attention, as one line of JSON, best first."""

    def keep(launch: TritonLaunch) -> bool:
        return stages is None or launch.num_stages == stages

    searched = find_kernel("attention", kernel)
    for head_dim in head_dims.split(","):
        problem = Problem(n_head=12, head_dim=int(head_dim), seq_len=4096, direction=direction, dtype=dtype)  # type: ignore[arg-type]
        found = search(searched, problem, gpu, keep=keep) if searched.candidates else []
        if not found:
            raise click.UsageError(f"{kernel} names no tiles to be searched for {dtype}, {direction}")
        for tried in found:
            print(json.dumps({"gpu": gpu, "head_dim": int(head_dim), **msgspec.structs.asdict(tried)}), flush=True)


if __name__ == "__main__":
    main()
