"""Page: cells against the ceilings of their machine."""

import itertools
from typing import Any

from andrea_bench.report import charts
from andrea_bench.report.content import Ceiling, Chart, MeasuredRun, Page, Part, Subject, Table
from andrea_bench.report.pages.marks import INTERVALS, about, anchor, by_run, fastest, kernel_name, samples
from andrea_bench.report.rows import Row
from andrea_bench.report.words import ABSENT, percent, rate, significant

MOST_POINTS = 300
HEADS = ("op", "kernel", "problem", "FLOP/byte", "rate", "of the ceiling", "cell_id")


def roofline(subject: Subject) -> Page:
    """For each Run, device and dtype the fastest kernel of each op and Problem, under the ceilings known."""
    title = "Roofline"
    parts = by_run(subject, _charts)
    if not parts:
        return Page("roofline", title, absent="no Run holds times of kernels that compute")
    return Page("roofline", title, parts)


def _charts(run: MeasuredRun, number: int) -> list[Part]:
    every = (((g.device, g.problem, row.record.op), row) for g in run.groups for row in g.rows)
    settings: dict[tuple[str, str], list[Row]] = {}
    for (device, problem, _), row in fastest(every).items():
        settings.setdefault((device, problem.dtype), []).append(row)
    return [
        _chart(run, device, dtype, rows, anchor("roofline", number, at))
        for at, ((device, dtype), rows) in enumerate(settings.items(), 1)
    ]


def _chart(run: MeasuredRun, device: str, dtype: str, rows: list[Row], name: str) -> Chart:
    shown = rows[:MOST_POINTS]
    roofs = [c for c in run.ceilings if dtype in c.tflops and c.gb_per_s]
    points: list[dict[str, Any]] = []
    table = []
    for row in shown:
        record = row.record
        density = record.flops / record.min_bytes
        best = _limit(roofs[0], dtype, density) if roofs else None
        share = percent(row.tflops / best) if best and row.tflops else ABSENT
        points.append({"series": record.op, "x": density, "value": row.tflops,
                       "about": f"{about(row)}; {significant(density)} FLOP/byte; {share} of the ceiling"})  # fmt: skip
        table.append((record.op, kernel_name(row), record.problem.label(), significant(density), rate(row.tflops),
                      share, record.cell_id))  # fmt: skip
    title = f"Useful TFLOP/s against FLOP per byte that must be moved: {dtype}, {device}"
    ceilings = "; ".join(
        f"{significant(c.tflops[dtype])} TFLOP/s and {significant(c.gb_per_s or 0.0)} GB/s by {c.source}" for c in roofs
    )
    known = (
        f"Ceilings: {ceilings}; percents are of the first."
        if roofs
        else "No ceiling of this machine is known (`andrea-bench calibrate`)."
    )
    cut = f" The first {MOST_POINTS} of {len(rows)} are drawn." if len(rows) > MOST_POINTS else ""
    return Chart(
        name,
        title,
        f"The fastest kernel of each op and Problem, by median time, {samples(shown)}, {INTERVALS}; both axes are "
        f"logarithmic. {known}{cut} "
        f"Small Problems that stay in the cache can lie above a memory ceiling.",
        charts.roofline(points, list(_lines(roofs, dtype, [p["x"] for p in points])),
                        "useful FLOP per byte", "useful TFLOP/s"),
        Table(f"{title}: figures", HEADS, table, frozenset(HEADS[3:6]), folded=True),
    )  # fmt: skip


def _limit(ceiling: Ceiling, dtype: str, density: float) -> float:
    """TFLOP/s at best with so many FLOP per byte."""
    return min(ceiling.tflops[dtype], (ceiling.gb_per_s or 0.0) * density / 1e3)


def _lines(roofs: list[Ceiling], dtype: str, densities: list[float]) -> "itertools.chain[dict[str, Any]]":
    """Each ceiling as a line over the densities there are, with its bend."""
    low, high = min(densities) / 2, max(densities) * 2
    return itertools.chain.from_iterable(
        [
            {"ceiling": c.source, "x": x, "value": _limit(c, dtype, x)}
            for x in (low, min(high, max(low, c.tflops[dtype] * 1e3 / (c.gb_per_s or 1.0))), high)
        ]
        for c in roofs
    )
