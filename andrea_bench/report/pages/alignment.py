"""Page: what a head_dim, or a projection width, costs per useful FLOP."""

from typing import Any

from andrea_bench.problem import Problem
from andrea_bench.report import charts
from andrea_bench.report.answers import Misalignment, misalignments
from andrea_bench.report.content import Chart, CompiledFacts, Heading, Page, Part, Said, Subject, Table
from andrea_bench.report.pages.marks import DOUBT, INTERVAL, about, anchor, kernel_name, samples
from andrea_bench.report.rows import GroupRows, Row
from andrea_bench.report.words import significant

# A width that costs a tenth more per useful FLOP than its aligned neighbour, and more than the noise, is named.
CLIFF = 1.1
MOST_CHARTS = 6


def alignment(subject: Subject) -> Page:
    """A line a kernel, cliffs named, the table of costs; computed widths where Facts are at hand."""
    title = "Alignment"
    parts: list[Part] = []
    for number, run in enumerate(subject.runs, 1):
        drawn = _charts(run.groups, number)
        if drawn and len(subject.runs) > 1:
            parts.append(Heading(run.label))
        found = misalignments(run.groups)
        parts += [*_cliffs(found), *drawn]
        if found:
            parts.append(_costs(found))
    if not parts:
        return Page("alignment", title, absent="no Run holds a kernel timed at several head_dims or widths")
    if subject.facts and (widths := _computed_widths(subject.facts)):
        parts.append(widths)
    return Page("alignment", title, parts)


def _cliffs(found: list[Misalignment]) -> list[Part]:
    """Of each width the kernels that it costs much, each at the setting where it costs most."""
    dearest: dict[tuple[str, int], dict[str, Misalignment]] = {}
    for one in sorted(found, key=lambda m: m.cost):
        if one.low > 1 and one.cost >= CLIFF:
            dearest.setdefault((one.row.record.op, one.width), {})[one.kernel] = one
    cliffs: list[Part] = []
    for (op, width), kernels in sorted(dearest.items()):
        members = sorted(kernels.values(), key=lambda m: m.kernel)
        costs = ", ".join(f"{m.kernel} {100 * (m.cost - 1):+.0f} %" for m in members)
        what = "head_dim" if op == "attention" else "projection width"
        ids = tuple(m.row.record.cell_id for m in members)
        cliffs.append(Said(f"Cliff at {what} {width}, per useful FLOP beside {members[0].base_width}: {costs}.", ids))
    return cliffs


def _charts(groups: list[GroupRows], number: int) -> list[Part]:
    """One chart for each op and setting in which only head_dim (and with it the width) varies."""
    settings: dict[tuple[str, str, str, Problem], list[Row]] = {}
    for group in groups:
        p = group.problem
        rest = p.replace(head_dim=1, d_model=p.n_head if group.suite == "alignment" else p.d_model)
        for row in group.rows:
            if row.median_us is not None and row.record.flops and group.suite in ("alignment", "attention"):
                settings.setdefault((group.suite, row.record.op, group.device, rest), []).append(row)
    several = [
        (key, rows) for key, rows in settings.items() if len({r.record.problem.head_dim for r in rows}) > 1
    ]  # fmt: skip
    drawn: list[Part] = [
        _chart(*key, rows, anchor("alignment", number, at)) for at, (key, rows) in enumerate(several[:MOST_CHARTS], 1)
    ]
    if len(several) > MOST_CHARTS:
        drawn.append(f"The first {MOST_CHARTS} of {len(several)} settings; the rows of all are on the last page.")
    return drawn


def _chart(suite: str, op: str, device: str, rest: Problem, rows: list[Row], name: str) -> Chart:
    rows = sorted(rows, key=lambda row: (row.record.kernel, row.record.problem.head_dim))
    width = "head_dim" if op == "attention" else "width (n_head x head_dim)"
    values: list[dict[str, Any]] = []
    table = []
    for row in rows:
        giga = row.record.flops / 1e9
        cost, low, high = ((us or 0.0) / giga for us in (row.median_us, row.low_us, row.high_us))
        values.append({
            "series": row.record.kernel, "x": row.record.problem.head_dim, "value": cost, "low": low, "high": high,
            "about": about(row),
        })  # fmt: skip
        figures = (significant(cost, 4), significant(low, 4), significant(high, 4))
        table.append((kernel_name(row), str(row.record.problem.head_dim), *figures,
                      str(len(row.record.samples_us)), row.record.cell_id))  # fmt: skip
    title = f"{op} ({suite}): batch {rest.batch}, seq_len {rest.seq_len}, {rest.n_head} heads, {rest.dtype}, {device}"
    heads = ("kernel", width, "us per GFLOP", "low", "high", "n", "cell_id")
    return Chart(
        name,
        f"Cost per useful FLOP, {title}",
        f"Microseconds for a billion useful FLOP against {width}, lower is better; {INTERVAL}; {samples(rows)}. "
        f"The axes do not start at zero. {DOUBT}",
        charts.lines(values, width, "us per useful GFLOP", zero=False),
        Table(f"{title}: figures", heads, table, frozenset(heads[1:6]), folded=True),
    )


def _costs(found: list[Misalignment]) -> Table:
    rows = [
        (m.kernel, str(m.width), str(m.base_width), f"{100 * (m.cost - 1):+.1f} %",
         f"{100 * (m.low - 1):+.1f} to {100 * (m.high - 1):+.1f} %", m.row.record.cell_id)
        for m in found
    ]  # fmt: skip
    heads = ("kernel", "width", "beside", "cost per useful FLOP", "low to high", "cell_id")
    caption = "What a width costs per useful FLOP beside its best aligned neighbour (unpaired intervals)"
    return Table(caption, heads, rows, frozenset(heads[1:5]))


def _computed_widths(facts: CompiledFacts) -> Table | None:
    """How wide the compiled kernels compute: what stands behind the measured steps."""
    rows = {}
    for one in facts.facts:
        problem = one.get("problem")
        if one["status"] == "ok" and problem and one.get("computed_width_qk"):
            key = (one["kernel"], one["gpu"], str(problem["head_dim"]))
            rows[key] = (*key, str(one["computed_width_qk"]), str(one["computed_width_pv"]))
    if not rows:
        return None
    heads = ("kernel", "gpu", "head_dim", "computed in Q K^T", "computed in P V")
    return Table("Computed width by the compiled code (Facts)", heads, list(rows.values()), frozenset(heads[2:]), True)
