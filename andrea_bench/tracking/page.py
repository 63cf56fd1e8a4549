"""A History as a page of the HTML report."""

from datetime import UTC, datetime
from typing import Any

from andrea_bench.report.content import Chart, Page, Part, Table
from andrea_bench.tracking.series import History, Series
from andrea_bench.tracking.words import change_text, value_text

MOST_LINES = 7  # of one chart: more can't be told apart


def history_page(history: History) -> Page:
    """A chart for each benchmark whose level changed or that has several commits, and a table of all steps."""
    series = [one for one in history.series if sum(value is not None for value in one.values()) > 1]
    if not series:
        return Page("history", "History", absent="no benchmark has values at two commits yet")
    parts: list[Part] = [
        f"{len(history.commits)} commits on {history.machine}, {history.environment}. Every value is asv's: for "
        "times the median, with its 99 % interval."
    ]
    parts += history.notes
    steps = [(one, step) for one in series for step in one.steps]
    if steps:
        rows = [
            (one.label, step.commit[:8], value_text(step.old, one), value_text(step.new, one), change_text(step))
            for one, step in steps
        ]
        columns = ("benchmark", "commit", "before", "after", "change")
        parts.append(Table("Changes of level", columns, rows, frozenset(columns[2:])))
    else:
        parts.append("No level changed.")
    by_benchmark: dict[str, list[Series]] = {}
    for one in series:
        by_benchmark.setdefault(one.label.partition("(")[0], []).append(one)
    for number, (name, group) in enumerate(by_benchmark.items(), 1):
        # Those that changed first.
        group.sort(key=lambda one: not one.steps)
        parts.append(_chart(f"history-{number}", name, group[:MOST_LINES], len(group), history))
    return Page("history", "History", parts)


def _chart(name: str, title: str, group: list[Series], total: int, history: History) -> Chart:
    from andrea_bench.report.charts import lines

    scale, unit = (1e6, "us") if group[0].type == "time" else (1.0, group[0].unit)
    values: list[dict[str, Any]] = []
    rows = []
    for one in group:
        short = one.label.partition("(")[2].removesuffix(")") or title
        for i, point in enumerate(one.points):
            if point is None or point.value is None:
                continue
            commit = history.commits[i][:8]
            value = point.value * scale
            low, high = ((point.low or point.value) * scale, (point.high or point.value) * scale)
            text = value_text(point.value, one)
            values.append({"series": short, "x": i + 1, "value": value, "low": low, "high": high,
                           "about": f"{short} at {commit}: {text}"})  # fmt: skip
            day = datetime.fromtimestamp(history.dates_ms[i] / 1000, UTC).strftime("%Y-%m-%d %H:%M")
            rows.append((short, str(i + 1), commit, day, text))
    left_out = f"; {total - len(group)} more are in the table of `history --json`" if total > len(group) else ""
    return Chart(
        name, title, f"{unit} over commits in the order of history (1 is the first){left_out}",
        lines(values, "commit", unit, zero=False),
        Table(f"Values of {title}", ("combination", "commit", "hash", "date", "value"), rows, folded=True),
    )  # fmt: skip
