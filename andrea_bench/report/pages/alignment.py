"""Page: what a head_dim, or a projection width, costs per useful FLOP."""

from collections import Counter
from typing import Any

from andrea_bench.hardware import match_device_name
from andrea_bench.problem import Problem
from andrea_bench.report import charts
from andrea_bench.report.answers import Misalignment, misalignments
from andrea_bench.report.content import Chart, CompiledFacts, MeasuredRun, Page, Part, Said, Subject, Table
from andrea_bench.report.pages.marks import INTERVAL, about, anchor, by_run, kernel_name, marked, samples, validity
from andrea_bench.report.rows import Row
from andrea_bench.report.words import ABSENT, counted, duration, significant

# A width that costs a tenth more per useful FLOP than its aligned neighbour, and more than the noise, is named.
CLIFF = 1.1
MOST_CHARTS = 6
# Of a Run: what a file of HTML below 5 MB has room for beside the rows of 10,000 cells.
MOST_POINTS = 1000
MOST_COSTS = 300
MOST_CLIFFS = 20
OPEN_COSTS = 24  # rows; a longer table is folded
MOST_NOTES = 10  # in a chart: more would tower over it
FIGURES = ("us per GFLOP", "low", "high", "n", "validity", "computed width", "cell_id")
Widths = dict[tuple[str, int, str, str], int]  # by kernel, head_dim, dtype and direction


def alignment(subject: Subject) -> Page:
    """A line a kernel, cliffs named, the table of costs; computed widths where Facts are at hand."""
    title = "Alignment"
    parts = by_run(subject, lambda run, number: _of_run(run, number, subject.facts))
    if not parts:
        return Page("alignment", title, absent="no Run holds a kernel timed at several head_dims or widths")
    if subject.facts and (widths := _computed_widths(subject.facts)):
        parts.append(widths)
    return Page("alignment", title, parts)


def _of_run(run: MeasuredRun, number: int, facts: CompiledFacts | None) -> list[Part]:
    found = misalignments(run.groups)
    parts = [*_cliffs(found), *_charts(run, number, found, facts)]
    if found:
        parts.append(_costs(found))
    return parts


def _is_cliff(one: Misalignment) -> bool:
    return one.low > 1 and one.cost >= CLIFF


def _cliffs(found: list[Misalignment]) -> list[Part]:
    """Of each width the kernels that it costs much, each at the setting where it costs most."""
    dearest: dict[tuple[str, int, int], dict[str, Misalignment]] = {}
    for one in sorted(filter(_is_cliff, found), key=lambda m: m.cost):
        dearest.setdefault((one.row.record.op, one.width, one.base_width), {})[one.kernel] = one
    steepest = sorted(dearest, key=lambda at: max(one.cost for one in dearest[at].values()), reverse=True)
    cliffs: list[Part] = []
    for op, width, base_width in sorted(steepest[:MOST_CLIFFS]):
        members = sorted(dearest[op, width, base_width].values(), key=lambda m: m.kernel)
        costs = ", ".join(f"{_name(m)} {_change(m)} ({_span(m)})" for m in members)
        what = "head_dim" if op == "attention" else "projection width"
        ids = tuple(i for m in members for i in (m.row.record.cell_id, m.base.record.cell_id))
        text = f"{costs}, per useful FLOP beside {base_width} (unpaired intervals).{_doubts(members)}"
        cliffs.append(Said(text, ids, f"Cliff at {what} {width}:"))
    if len(steepest) > MOST_CLIFFS:
        cliffs.append(f"The dearest {MOST_CLIFFS} of {len(steepest)} cliffs.")
    return cliffs


def _change(one: Misalignment) -> str:
    return f"{100 * (one.cost - 1):+.0f} %"


def _span(one: Misalignment) -> str:
    return f"{100 * (one.low - 1):+.1f} to {100 * (one.high - 1):+.1f} %"


def _name(one: Misalignment) -> str:
    return marked(one.kernel, one.row, one.base)


def _doubts(found: list[Misalignment]) -> str:
    """Why those whose name carries a mark are in doubt, a width or the one beside it."""
    kernels: dict[str, dict[str, None]] = {}
    for m in found:
        for reason in m.base.record.validity.reasons + m.row.record.validity.reasons:
            kernels.setdefault(reason, {})[m.kernel] = None
    told = "; ".join(f"{reason} ({', '.join(of)})" for reason, of in kernels.items())
    return f" In doubt: {told}." if told else ""


def _charts(run: MeasuredRun, number: int, found: list[Misalignment], facts: CompiledFacts | None) -> list[Part]:
    """One chart for each op and setting in which only head_dim (and with it the width) varies."""
    settings: dict[tuple[str, str, str, Problem], list[Row]] = {}
    for group in run.groups:
        p = group.problem
        rest = p.replace(head_dim=1, d_model=p.n_head if group.suite == "alignment" else p.d_model)
        for row in group.rows:
            if row.median_us is not None and row.record.flops and group.suite in ("alignment", "attention"):
                settings.setdefault((group.suite, row.record.op, group.device, rest), []).append(row)
    several = [
        (key, rows) for key, rows in settings.items() if len({r.record.problem.head_dim for r in rows}) > 1
    ]  # fmt: skip
    compiled = _compiled_widths(run, facts)
    drawn: list[Part] = []
    left = MOST_POINTS
    for key, rows in several[:MOST_CHARTS]:
        fitting = _fitting(rows, left) or ([] if drawn else rows[:left])
        left -= len(fitting)
        if fitting:
            cut = len(rows) - len(fitting)
            drawn.append(_chart(*key, fitting, cut, found, compiled, anchor("alignment", number, len(drawn) + 1)))
    if len(several) > len(drawn):
        drawn.append(f"{len(drawn)} of {len(several)} settings are drawn; the rows of all are on the last page.")
    return drawn


def _fitting(rows: list[Row], most: int) -> list[Row]:
    """The rows of the first kernels that have no more than `most` together: a line is drawn whole or not at all."""
    kept: set[str] = set()
    for kernel, points in Counter(row.record.kernel for row in rows).items():
        if points <= most:
            kept.add(kernel)
            most -= points
    return [row for row in rows if row.record.kernel in kept]


def _chart(
    suite: str,
    op: str,
    device: str,
    rest: Problem,
    rows: list[Row],
    cut: int,
    found: list[Misalignment],
    compiled: Widths,
    name: str,
) -> Chart:
    """cut: how many more rows there are than those to be drawn."""
    rows = sorted(rows, key=lambda row: (row.record.kernel, row.record.problem.head_dim))
    width = "head_dim" if op == "attention" else "width (n_head x head_dim)"
    notes = _notes(found, {row.record.cell_id for row in rows})
    values: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    table: list[tuple[str, ...]] = []
    of_kernel: dict[str, list[Row]] = {}
    for row in rows:
        of_kernel.setdefault(row.record.kernel, []).append(row)
    names = {kernel: marked(kernel, *members) for kernel, members in of_kernel.items()}
    for row in rows:
        giga, head_dim = row.record.flops / 1e9, row.record.problem.head_dim
        cost, low, high = ((us or 0.0) / giga for us in (row.median_us, row.low_us, row.high_us))
        computed = _computed_width(row, compiled)
        wide = "" if computed is None else f"; computed {computed} wide"
        values.append({
            "series": names[row.record.kernel], "x": head_dim, "value": cost, "low": low, "high": high,
            "note": notes.get(row.record.cell_id), "about": f"{about(row)}{wide}",
        })  # fmt: skip
        if computed is not None:
            steps.append({"series": row.record.kernel, "x": head_dim, "value": computed})
        figures = (significant(cost, 4), significant(low, 4), significant(high, 4))
        table.append((kernel_name(row), str(head_dim), *figures, str(len(row.record.samples_us)), validity(row),
                      ABSENT if computed is None else str(computed), row.record.cell_id))  # fmt: skip
    heads_of = f", {rest.n_head} heads" if rest.n_head > 1 else ""
    title = f"{op} ({suite}): batch {rest.batch}, seq_len {rest.seq_len}{heads_of}, {rest.dtype}, {device}"
    heads: tuple[str, ...] = ("kernel", width, *FIGURES)
    if not steps:  # no kernel here tells
        heads, table = (*heads[:7], heads[8]), [(*line[:7], line[8]) for line in table]
    behind = " Grey steps behind the lines: how wide the kernel computes, on the axis to the right." if steps else ""
    named = " The dearest cliffs carry what the width costs beside its aligned neighbour." if notes else ""
    more = f" {counted(cut, 'more point')} are not drawn; the last page has all rows." if cut else ""
    return Chart(
        name,
        f"Cost per useful FLOP, {title}",
        f"Microseconds for a billion useful FLOP against {width}, lower is better; {INTERVAL}; {samples(rows)}. "
        f"The axes do not start at zero.{named}{behind}{more}{_in_doubt(rows)}",
        charts.lines(values, width, "us per useful GFLOP", zero=False, steps=steps, behind="computed width"),
        Table(f"{title}: figures", heads, table, frozenset(heads[1:-1]) - {"validity"}, folded=True),
    )


def _in_doubt(rows: list[Row]) -> str:
    """How many points of a chart are in doubt: a line is marked for any of its points."""
    doubted = sum(row.record.validity.verdict != "valid" for row in rows)
    if not doubted:
        return ""
    are = "is" if doubted == 1 else "are"
    return f" {doubted} of {counted(len(rows), 'point')} {are} in doubt: a kernel with ! has such, the table says why."


def _notes(found: list[Misalignment], drawn: set[str]) -> dict[str, str]:
    """What is written beside the point of a cliff, by cell_id: of each width the dearest alone, of many widths the
    dearest ones."""
    cliffs = [m for m in found if _is_cliff(m) and m.row.record.cell_id in drawn]
    dearest = {m.width: m for m in sorted(cliffs, key=lambda m: m.cost)}
    noted = sorted(dearest.values(), key=lambda m: m.cost)[-MOST_NOTES:]
    return {m.row.record.cell_id: marked(f"{m.width}: {_change(m)}", m.row, m.base) for m in noted}


def _costs(found: list[Misalignment]) -> Table:
    """The dearest, in the order in which they were found."""
    dearest = sorted(range(len(found)), key=lambda at: found[at].cost, reverse=True)
    shown = [found[at] for at in sorted(dearest[:MOST_COSTS])]
    rows = [
        (_name(m), str(m.width), str(m.base_width), duration(m.row.median_us), duration(m.base.median_us),
         f"{100 * (m.cost - 1):+.1f} %", _span(m),
         m.row.record.cell_id)
        for m in shown
    ]  # fmt: skip
    heads = ("kernel", "width", "beside", "time", "time beside", "cost per useful FLOP", "low to high", "cell_id")
    caption = "What a width costs per useful FLOP beside its best aligned neighbour (unpaired intervals)"
    if any(_name(m) != m.kernel for m in shown):
        caption += "; ! is in doubt"
    if len(found) > len(shown):
        caption += f"; the dearest {len(shown)} of {len(found)}"
    return Table(caption, heads, rows, frozenset(heads[1:7]), folded=len(rows) > OPEN_COSTS)


# ---- computed width: what stands behind the measured steps -------------------------------------------
def _computed_width(row: Row, compiled: Widths) -> int | None:
    """How wide a row of head_dim is computed: as the Record tells, else as Facts of this GPU do."""
    told = row.record.counters.get("computed_width")
    problem = row.record.problem
    return told or compiled.get((row.record.kernel, problem.head_dim, problem.dtype, problem.direction))


def _compiled_widths(run: MeasuredRun, facts: CompiledFacts | None) -> Widths:
    """The computed widths that Facts hold of the GPU that this Run measured on."""
    gpu = match_device_name((run.head.environment.get("gpu") or {}).get("name") or "")
    if facts is None or gpu is None:
        return {}
    return {
        (one["kernel"], one["problem"]["head_dim"], one["problem"]["dtype"], one["direction"]): one["computed_width_qk"]
        for one in facts.facts
        if one["gpu"] == gpu.name and one["status"] == "ok" and one.get("problem") and one.get("computed_width_qk")
    }


def _computed_widths(facts: CompiledFacts) -> Table | None:
    """How wide the compiled kernels compute, on every GPU that they were compiled for."""
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
