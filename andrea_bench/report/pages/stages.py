"""Page: layout and launch grid, and where the time of one layer goes."""

from dataclasses import replace
from typing import Any

from andrea_bench.report import charts
from andrea_bench.report.content import Chart, CompiledFacts, Heading, Page, Part, Subject, Table
from andrea_bench.report.pages.marks import (
    DOUBT,
    about,
    anchor,
    kernel_name,
    samples,
    time_scale,
    times_chart,
    times_table,
)
from andrea_bench.report.rows import GroupRows, Row, ratio
from andrea_bench.statistics import Ratio
from andrea_bench.suites.layer import STAGES

WHOLE = "five_steps"
MOST_GROUPS = 4


def stages(subject: Subject) -> Page:
    """Stages of the layer stacked beside the measured whole, kernels of the layout, grids of compiled kernels."""
    title = "Layer and layout"
    parts: list[Part] = []
    for number, run in enumerate(subject.runs, 1):
        layers = [c for g in run.of_suite("layer") if (c := _stacked(g, anchor("layer", number))) is not None]
        layouts = run.of_suite("layout")
        if (layers or layouts) and len(subject.runs) > 1:
            parts.append(Heading(run.label))
        parts += layers[:MOST_GROUPS]
        parts += [_layout(group, anchor("layout", number, at)) for at, group in enumerate(layouts[:MOST_GROUPS], 1)]
        left = max(0, len(layers) - MOST_GROUPS) + max(0, len(layouts) - MOST_GROUPS)
        if left:
            parts.append(f"{left} more Problems are not drawn; their rows are on the last page.")
    if subject.facts and (grids := _grids(subject.facts)):
        parts.append(grids)
    if not parts:
        return Page("layer", title, absent="no Run holds times of the suites layer or layout")
    return Page("layer", title, parts)


def _stacked(group: GroupRows, name: str) -> Chart | None:
    whole = group.row(WHOLE)
    found = [(op, row) for op, kernel in STAGES if (row := group.row(kernel)) is not None]
    if not found:
        return None
    others = [r for r in group.rows if r.record.op == "layer" and r.median_us is not None]
    rows = [row for _, row in found] + others
    scale, unit = time_scale(rows)
    values = [
        _part("sum of the stages", f"{op}: {kernel_name(row)}", row, scale, at) for at, (op, row) in enumerate(found)
    ]
    values += [_part(kernel_name(row), "measured whole", row, scale, 9) for row in others]
    missing = [op for op, kernel in STAGES if op not in [o for o, _ in found]]
    lacks = f" Without a time: {', '.join(missing)}." if missing else ""
    beside = ""
    if whole is not None and whole.median_us and not missing:
        total = sum(row.median_us or 0.0 for _, row in found)
        beside = f" The whole takes {100 * (whole.median_us / total - 1):+.1f} % of the sum."
    title = f"Stages of one layer: {group.problem.label()}, {group.device}"
    return Chart(
        f"{name}-{anchor(group.problem.label())}",
        title,
        f"Median times in {unit}, stacked from zero, {samples(rows)}; intervals are in the table."
        f"{beside}{lacks} {DOUBT}",
        charts.stacked(values, f"median time ({unit})"),
        times_table(f"{title}: times", rows),
    )


def _part(name: str, part: str, row: Row, scale: float, order: int) -> dict[str, Any]:
    return {
        "name": name, "part": part, "order": order, "value": (row.median_us or 0.0) / scale,
        "about": f"{row.record.op}: {about(row)}",
    }  # fmt: skip


def _layout(group: GroupRows, name: str) -> Chart:
    rows = [replace(row, to_baseline=_to_strided(group, row)) for row in group.rows if row.median_us is not None]
    title = f"Strided or contiguous heads: {group.problem.label()}, {group.device}"
    return times_chart(name, title, rows, "what does the same on the strided view")


def _to_strided(group: GroupRows, row: Row) -> Ratio | None:
    """To the kernel that does the same on the strided view: Q K^T is no baseline of a whole attention, nor that of
    it."""
    strided = group.row(f"{row.record.kernel.partition('_')[0]}_strided")
    return ratio(row, strided) if strided is not None and strided is not row else None


def _grids(facts: CompiledFacts) -> Table | None:
    rows = []
    for one in facts.facts:
        if one["status"] == "ok" and one.get("grid"):
            problem = one.get("problem") or {}
            waves, tail = one.get("waves"), one.get("tail_efficiency")
            rows.append((
                one["kernel"], one["gpu"], str(problem.get("head_dim", "-")), " x ".join(map(str, one["grid"])),
                str(one.get("blocks", "-")), f"{waves:.2f}" if waves is not None else "-",
                f"{100 * tail:.0f} %" if tail is not None else "-",
            ))  # fmt: skip
    if not rows:
        return None
    heads = ("kernel", "gpu", "head_dim", "grid", "blocks", "waves", "tail efficiency")
    return Table("Launch grid of the compiled kernels (Facts)", heads, rows, frozenset(heads[2:]), folded=True)
