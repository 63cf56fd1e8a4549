"""Page: what clocks, power, temperature and energy were while a Run was measured, where they were counted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from andrea_bench.report import charts
from andrea_bench.report.content import Chart, MeasuredRun, Page, Part, Subject, Table
from andrea_bench.report.pages.marks import anchor, by_run, kernel_name, n_of
from andrea_bench.report.rows import GroupRows, Row
from andrea_bench.report.words import ABSENT, significant
from andrea_bench.statistics import median

MOST_CHARTS = 6
MOST_POINTS = 120  # of a series: closer together they are one line to the eye, and 10,000 fill a file
MOST_REASONS = 60
ENERGY = "gpu_energy_per_call"


@dataclass(frozen=True)
class Reading:
    """A counter to be drawn. low: the counter of the lowest value seen, where there is one; limit: of the most
    that the machine allows."""

    series: str
    counter: str
    low: str | None = None
    limit: str | None = None


# A chart for each unit: (name of it, unit, what is shown of a Group, its readings).
OVER_TIME: tuple[tuple[str, str, str, tuple[Reading, ...]], ...] = (
    ("Clock", "MHz", "median", (
        Reading("SM clock", "gpu_sm_clock_mhz", "gpu_sm_clock_min_mhz", "gpu_max_sm_clock_mhz"),
        Reading("CPU clock", "cpu_clock_mhz", None, "cpu_max_clock_mhz"),
    )),
    ("Memory clock", "MHz", "median", (Reading("memory clock", "gpu_memory_clock_mhz"),)),
    ("Power", "W", "mean", (Reading("GPU power", "gpu_power_watts", None, "gpu_power_limit_watts"),)),
    ("Temperature", "degrees Celsius", "last reading", (
        Reading("GPU", "gpu_temperature_celsius"), Reading("CPU", "cpu_temperature_celsius"),
    )),
    ("Energy of all CPU packages", "J", "sum", (Reading("CPU packages", "cpu_package_joules"),)),
)  # fmt: skip


def energy(subject: Subject) -> Page:
    """For each Run its readings against the time since its start, then the energy of a call, kernel by kernel."""
    title = "Energy and clocks"
    parts = by_run(subject, lambda run, number: [*_over_time(run, number), *_per_call(run, number)])
    if not parts:
        return Page("energy", title, absent=f"no clock, power, temperature or energy was counted{_why(subject)}")
    return Page("energy", title, parts)


def _why(subject: Subject) -> str:
    """The reasons that Records give for what they lack."""
    names = [f"{reading.counter}_reason" for *_, readings in OVER_TIME for reading in readings]
    counters = [row.record.counters for run in subject.runs for row in run.rows()]
    reasons = dict.fromkeys(str(c[name]) for c in counters for name in [*names, "gpu_counters_reason"] if c.get(name))
    return f": {'; '.join(list(reasons)[:3])}" if reasons else ""


# ---- over time ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Point:
    """What a counter read while a Group was measured, `at` seconds after the Run began; or of several Groups that
    follow one another the median, with the lowest and the highest."""

    series: str
    at: float
    value: float
    low: float
    high: float
    of: str
    cell_id: str


def _over_time(run: MeasuredRun, number: int) -> list[Part]:
    watched = [(group, row) for group in run.groups if (row := _watched(group)) is not None]
    drawn = [_reading(run, watched, *one, anchor("energy", number, one[0])) for one in OVER_TIME]
    return [part for part in drawn if part is not None]


def _watched(group: GroupRows) -> Row | None:
    """One row of the Group that was watched: all its rows were, at once."""
    return next((row for row in group.rows if "interval_s" in row.record.counters), None)


def _reading(
    run: MeasuredRun,
    watched: Sequence[tuple[GroupRows, Row]],
    what: str,
    unit: str,
    shown: str,
    readings: Sequence[Reading],
    name: str,
) -> Part | None:
    """The readings of one unit against time; in words where they never changed, None where there are none."""
    found = [(r, row, p) for group, row in watched for r in readings if (p := _point(run, group, row, r)) is not None]
    if not found:
        return None
    limits = dict.fromkeys(
        f"{reading.series} {row.record.counters[reading.limit]:.0f} {unit}"
        for reading, row, _ in found
        if reading.limit and row.record.counters.get(reading.limit) is not None
    )
    most = f" At most, says the machine: {', '.join(limits)}." if limits else ""
    every = [point for *_, point in found]
    if len(every) > 1 and len({(p.series, p.value, p.low) for p in every}) == 1:
        return f"{what}: {every[0].series} {significant(every[0].value, 4)} {unit} throughout.{most}"
    points, together = _thinned(every)
    lowest = " Lines down reach the lowest seen." if any(p.low != p.value for p in points) else ""
    if together > 1:
        lowest = f" Each point is the median of {together} Groups that follow one another, its line from the lowest to "
        lowest += f"the highest: {MOST_POINTS} points at most."
    title = f"{what} while it was measured"
    return Chart(
        name,
        title,
        f"In {unit}, the {shown} of each Group (n {len(watched)} Groups, in the first process; no interval: each was "
        f"watched once), against the seconds since the Run began.{lowest}{most} The axes do not start at zero.",
        charts.lines(
            [_mark(point, unit) for point in points],
            "seconds since the start", f"{what.lower()} ({unit})", zero=False, whole=False,
        ),
        _readings(f"{title}: figures", points, unit),
    )  # fmt: skip


def _point(run: MeasuredRun, group: GroupRows, row: Row, reading: Reading) -> Point | None:
    counters, at = row.record.counters, _seconds(run, row)
    value = counters.get(reading.counter)
    if value is None or at is None:
        return None
    least = counters.get(reading.low) if reading.low else None
    low = value if least is None else least
    of = f"{group.suite}, {group.problem.label()}"
    return Point(reading.series, at, value, low, value, of, row.record.cell_id)


def _seconds(run: MeasuredRun, row: Row) -> float | None:
    """Since the Run began; None where another writer's times are none, or one has no time zone."""
    try:
        began, now = (datetime.fromisoformat(text) for text in (run.head.started_at, row.record.started_at))
        return round((now - began).total_seconds(), 1)
    except (TypeError, ValueError):
        return None


def _thinned(points: Sequence[Point]) -> tuple[list[Point], int]:
    """In the order of time at most MOST_POINTS of each series, and how many readings stand behind one of them."""
    series: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda point: point.at):
        series.setdefault(point.series, []).append(point)
    together = math.ceil(max(map(len, series.values())) / MOST_POINTS)
    thinned = [_merged(of[at : at + together]) for of in series.values() for at in range(0, len(of), together)]
    return thinned, together


def _merged(points: Sequence[Point]) -> Point:
    first, last = points[0], points[-1]
    if first is last:
        return first
    return Point(
        first.series,
        median([point.at for point in points]),
        median([point.value for point in points]),
        min(point.low for point in points),
        max(point.high for point in points),
        f"median of {len(points)} Groups",
        f"{first.cell_id} to {last.cell_id}",
    )


def _mark(point: Point, unit: str) -> dict[str, Any]:
    value, low, high = (significant(figure, 4) for figure in (point.value, point.low, point.high))
    lowest = f" (lowest {low})" if point.low != point.value else ""
    reach = f" ({low} to {high})" if point.high != point.value else lowest
    return {
        "series": point.series, "x": point.at, "value": point.value, "low": point.low, "high": point.high,
        "about": f"{point.at:.1f} s: {point.series} {value} {unit}{reach}; {point.of}; cell_id {point.cell_id}",
    }  # fmt: skip


def _readings(caption: str, points: Sequence[Point], unit: str) -> Table:
    heads = ("since the start (s)", "reading", unit, "lowest", "highest", "Group", "cell_id")
    rows = [
        (f"{p.at:.1f}", p.series, *(significant(figure, 4) for figure in (p.value, p.low, p.high)), p.of, p.cell_id)
        for p in points
    ]
    return Table(caption, heads, rows, frozenset({heads[0], *heads[2:5]}), folded=True)


# ---- energy of one call ------------------------------------------------------------------------------
def _per_call(run: MeasuredRun, number: int) -> list[Part]:
    counted = [(g, [row for row in g.rows if row.record.counters.get(ENERGY)]) for g in run.groups]
    with_energy = [(group, rows) for group, rows in counted if any(_joules(row) is not None for row in rows)]
    parts: list[Part] = [
        _calls(group, rows, anchor("energy-per-call", number, at))
        for at, (group, rows) in enumerate(with_energy[:MOST_CHARTS], 1)
    ]
    if len(with_energy) > MOST_CHARTS:
        parts.append(f"Energy of the first {MOST_CHARTS} of {len(with_energy)} Problems; the Run holds all.")
    reasons = dict.fromkeys(
        f"{row.record.kernel}: {row.record.counters[ENERGY].get('reason')}"
        for _, rows in counted for row in rows if _joules(row) is None
    )  # fmt: skip
    if reasons:
        told = [(reason,) for reason in list(reasons)[:MOST_REASONS]]
        parts.append(Table("Energy that could not be told, and why", ("what",), told, folded=True))
    return parts


def _joules(row: Row) -> float | None:
    found: float | None = row.record.counters[ENERGY].get("joules_per_call")
    return found


def _calls(group: GroupRows, rows: Sequence[Row], name: str) -> Chart:
    told = [(row, joules) for row in rows if (joules := _joules(row)) is not None]
    scale, unit = (1.0, "J") if max(joules for _, joules in told) >= 1 else (1e3, "mJ")
    values, table = [], []
    for row, joules in told:
        found = row.record.counters[ENERGY]
        bound = found.get("relative_error_bound") or 0.0
        watts, rate = found.get("average_watts"), found.get("tflop_per_joule")
        figures = (
            f"{significant(scale * joules)} {unit}", f"{100 * bound:.1f} %",
            ABSENT if watts is None else f"{watts:.0f} W", ABSENT if rate is None else f"{significant(rate)} TFLOP/J",
        )  # fmt: skip
        values.append({
            "name": kernel_name(row), "value": scale * joules, "low": scale * joules * (1 - bound),
            "high": scale * joules * (1 + bound), "text": f"{figures[0]}, {figures[2]}",
            "about": f"{row.record.kernel}: {figures[0]} a call, off by at most {figures[1]}; {figures[2]}; "
                     f"{figures[3]}; {found.get('calls')} calls in {significant(found.get('window_s') or 0.0)} s; "
                     f"cell_id {row.record.cell_id}",
        })  # fmt: skip
        table.append((row.record.kernel, *figures, str(found.get("calls")), row.record.cell_id))
    calls = [row.record.counters[ENERGY].get("calls") or 0 for row, _ in told]
    title = f"Energy of one call: {group.suite}, {group.problem.label()}, {group.device}"
    heads = ("kernel", "energy", "off by at most", "power", "useful work", "calls", "cell_id")
    return Chart(
        name,
        title,
        f"{unit} a call, less is better, from a window of its own in which calls run back to back "
        f"({n_of(calls)} calls). Lines: how far the steps of the driver's counter can put it off; they are no "
        f"confidence interval.",
        charts.bars(values, f"energy of one call ({unit})"),
        Table(f"{title}: figures", heads, table, frozenset(heads[1:6]), folded=True),
    )
