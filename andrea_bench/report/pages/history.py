"""Page: benchmarks over commits, from what asv recorded."""

from datetime import UTC, datetime
from typing import Any

from andrea_bench.report import charts
from andrea_bench.report.content import Chart, Page, Part, Subject, Table
from andrea_bench.report.words import changed_by, tracked

# More lines can't be told apart in one chart; more charts than that nobody looks at.
MOST_LINES = 7
MOST_CHARTS = 12
LEAST_ABOVE = 0.05  # as for a step: less is no change of level


def history(subject: Subject) -> Page:
    """What changed as two tables, charts of what changed most, and each series' latest value."""
    title = "History"
    found = subject.history
    if found is None:
        return Page("history", title, absent="no results of asv were given (`report --history .asv/results`)")
    series = [one for one in found["series"] if sum(value is not None for value in one["values"]) > 1]
    if not series:
        return Page("history", title, absent="no benchmark has values at two commits yet")
    commits = found["commits"]
    parts: list[Part] = [
        f"{len(commits)} commits, {commits[0][:8]} to {commits[-1][:8]}, measured by asv on {found['machine']}, "
        f"{found['environment']}. A time is asv's median, its bar the 99 % interval."
    ]
    parts += found["notes"]
    parts += [_steps(series), _above_best(series)]
    by_benchmark: dict[str, list[dict[str, Any]]] = {}
    for one in sorted(series, key=_unchanged):
        by_benchmark.setdefault(one["benchmark"], []).append(one)
    drawn = list(by_benchmark.items())[:MOST_CHARTS]
    parts += [_chart(f"history-{i}", name, group, found) for i, (name, group) in enumerate(drawn, 1)]
    if len(by_benchmark) > len(drawn):
        parts.append(f"Of {len(by_benchmark)} benchmarks {len(drawn)} are drawn, those that changed first.")
    parts.append(_latest(found["series"]))
    return Page("history", title, parts)


def _unchanged(one: dict[str, Any]) -> bool:
    """Sorts what changed to the front."""
    return not one["steps"] and (one["from_best"] or 0) < LEAST_ABOVE


def _steps(series: list[dict[str, Any]]) -> Part:
    rows = [
        (_label(one), step["commit"][:8], tracked(step["old"], one["unit"]), tracked(step["new"], one["unit"]),
         changed_by(step["old"], step["new"]))
        for one in series
        for step in one["steps"]
    ]  # fmt: skip
    columns = ("benchmark", "commit", "before", "after", "change")
    return Table("Changes of level", columns, rows, frozenset(columns[2:])) if rows else "No level changed."


def _above_best(series: list[dict[str, Any]]) -> Part:
    above = sorted((one for one in series if (one["from_best"] or 0) >= LEAST_ABOVE), key=lambda one: -one["from_best"])
    rows = [(_label(one), tracked(one["values"][-1], one["unit"]), f"{100 * one['from_best']:+.3g} %") for one in above]
    columns = ("benchmark", "latest", "above the best level")
    if not rows:
        return f"No latest value lies {100 * LEAST_ABOVE:.0f} % or more above the best level that its series had."
    return Table("Above the best earlier level", columns, rows, frozenset(columns[1:]))


def _latest(series: list[dict[str, Any]]) -> Table:
    columns = ("benchmark", "latest", "from best", "state")
    rows = []
    for one in series:
        latest = next((value for value in reversed(one["values"]) if value is not None), None)
        from_best = "" if one["from_best"] is None else f"{100 * one['from_best']:+.3g} %"
        rows.append((_label(one), tracked(latest, one["unit"]), from_best, one["state"]))
    return Table("Latest value of each series", columns, rows, frozenset(columns[1:3]), folded=True)


def _chart(name: str, title: str, group: list[dict[str, Any]], found: dict[str, Any]) -> Chart:
    seconds = group[0]["unit"] == "seconds"
    scale, unit = (1e6, "us") if seconds else (1.0, group[0]["unit"])
    values, rows = [], []
    for one in group[:MOST_LINES]:
        short = ", ".join(one["parameters"].values()) or title
        for i, value in enumerate(one["values"]):
            if value is None:
                continue
            commit, text = found["commits"][i][:8], tracked(value, one["unit"])
            low, high = (value if bound is None else bound for bound in (one["low"][i], one["high"][i]))
            values.append({"series": short, "x": i + 1, "value": value * scale, "low": low * scale,
                           "high": high * scale, "about": f"{short} at {commit}: {text}"})  # fmt: skip
            day = datetime.fromtimestamp(found["dates_ms"][i] / 1000, UTC).strftime("%Y-%m-%d %H:%M")
            rows.append((short, str(i + 1), commit, day, text))
    more = f"; {len(group) - MOST_LINES} more series are in the last table" if len(group) > MOST_LINES else ""
    return Chart(
        name, title,
        f"{unit} over commits in the order of history (1 is the first): asv's median, lines its 99 % interval; asv's "
        f"own files hold n. The axes do not start at zero{more}.",
        charts.lines(values, "commit", unit, zero=False),
        Table(f"Values of {title}", ("series", "commit", "hash", "date", "value"), rows, folded=True),
    )  # fmt: skip


def _label(one: dict[str, Any]) -> str:
    values = ", ".join(one["parameters"].values())
    return f"{one['benchmark']}({values})" if values else one["benchmark"]
