"""From rows to the marks of a chart and the table beside it."""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from andrea_bench.report import charts
from andrea_bench.report.content import Chart, Heading, MeasuredRun, Part, Subject, Table
from andrea_bench.report.rows import Row
from andrea_bench.report.words import ABSENT, duration, interval, rate, significant

Key = TypeVar("Key", bound=Hashable)
INTERVAL = "lines: 95 % interval of the median"
INTERVALS = "intervals in each mark's own text and on the last page"
TIMES = ("kernel", "time", "low", "high", "n", "to baseline", "rate", "validity", "cell_id")
NUMBERS = frozenset({"time", "low", "high", "n", "rate"})


def anchor(*words: object) -> str:
    """A name for a file or an anchor: [a-z0-9-], whatever the words are."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(map(str, words)).lower()).strip("-")


def by_run(subject: Subject, parts_of: Callable[[MeasuredRun, int], Sequence[Part]]) -> list[Part]:
    """The parts of each Run, which is counted from 1, under its label where there are several."""
    parts: list[Part] = []
    for number, run in enumerate(subject.runs, 1):
        found = parts_of(run, number)
        if found and len(subject.runs) > 1:
            parts.append(Heading(run.label))
        parts += found
    return parts


def fastest(rows: Iterable[tuple[Key, Row]]) -> dict[Key, Row]:
    """Of each key the row with the shortest time, among those that compute."""
    found: dict[Key, Row] = {}
    for key, row in rows:
        if row.tflops and (key not in found or (row.median_us or 0.0) < (found[key].median_us or 0.0)):
            found[key] = row
    return found


def kernel_name(row: Row) -> str:
    """The kernel as charts write it: a user's own without its folders; ` !` where its time is in doubt."""
    name = row.record.kernel
    short = name.rpartition("/")[2] if ".py:" in name else name
    return marked(short, row)


def marked(name: str, *rows: Row) -> str:
    """The name of what rests on these rows: with ` !` where one of their times is in doubt."""
    return f"{name} !" if any(row.record.validity.verdict != "valid" for row in rows) else name


def validity(row: Row) -> str:
    """As in `suspect: the clock fell`."""
    doubts = "; ".join(row.record.validity.reasons)
    return f"{row.record.validity.verdict}: {doubts}" if doubts else row.record.validity.verdict


def in_doubt(rows: Iterable[Row]) -> str:
    """For a caption: what the mark of `marked` means, where one of the rows has it."""
    doubted = any(row.record.validity.verdict != "valid" for row in rows)
    return " ! marks a time in doubt; its row of the table says why." if doubted else ""


def about(row: Row) -> str:
    """What a mark says of itself: exact figures, n, what is in doubt, and where to find it."""
    record = row.record
    parts = [
        f"{record.kernel}: {_exact(row.median_us)} us ({_exact(row.low_us)} to {_exact(row.high_us)}), "
        f"n {len(record.samples_us)}",
        record.problem.label(),
    ]
    if row.to_baseline:
        parts.append(f"{interval(row.to_baseline)} of the baseline")
    if record.flops:
        parts.append(rate(row.tflops))
    parts += record.validity.reasons
    return "; ".join([*parts, f"cell_id {record.cell_id}"])


def time_scale(rows: Sequence[Row]) -> tuple[float, str]:
    """Microseconds in the unit that suits the longest time, and the unit."""
    longest = max((row.high_us or 0.0 for row in rows), default=0.0)
    return next(
        (s, u) for limit, s, u in ((1e3, 1.0, "us"), (1e6, 1e3, "ms"), (float("inf"), 1e6, "s")) if longest < limit
    )


def times_table(caption: str, rows: Sequence[Row], *, folded: bool = True) -> Table:
    """The times of rows with intervals."""
    return Table(caption, TIMES, [_times(row) for row in rows], NUMBERS, folded)


def times_chart(name: str, title: str, rows: Sequence[Row], baseline: str = "the baseline") -> Chart:
    """Bars of the median times of rows, which have times, with their intervals. baseline: what their ratios are to."""
    scale, unit = time_scale(rows)
    values: list[dict[str, Any]] = [
        {
            "name": kernel_name(row),
            "value": (row.median_us or 0.0) / scale,
            "low": (row.low_us or 0.0) / scale,
            "high": (row.high_us or 0.0) / scale,
            "text": duration(row.median_us) + (f", {row.to_baseline.ratio:.2f} x" if row.to_baseline else ""),
            "about": about(row),
        }
        for row in rows
    ]
    beside = f" x: times the time of {baseline}, paired." if any(row.to_baseline for row in rows) else ""
    return Chart(
        name,
        title,
        f"Median time in {unit}, shorter is better; {INTERVAL}; {samples(rows)}.{beside} {DOUBT}",
        charts.bars(values, f"median time ({unit})"),
        times_table(f"{title}: times", rows),
    )


DOUBT = "A name with ! is a time in doubt; its row says why."


def samples(rows: Sequence[Row]) -> str:
    """`n 10 to 30` over the rows."""
    return n_of(len(row.record.samples_us) for row in rows)


def n_of(counts: Iterable[int]) -> str:
    """`n 10`, `n 10 to 30`."""
    found = sorted(set(counts)) or [0]
    return f"n {found[0]}" if len(found) == 1 else f"n {found[0]} to {found[-1]}"


def _times(row: Row) -> tuple[str, ...]:
    record = row.record
    return (
        record.kernel,
        duration(row.median_us),
        duration(row.low_us),
        duration(row.high_us),
        str(len(record.samples_us)),
        interval(row.to_baseline),
        rate(row.tflops),
        validity(row),
        record.cell_id,
    )


def _exact(us: float | None) -> str:
    return ABSENT if us is None else significant(us, 6)
