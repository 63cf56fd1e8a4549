"""Page: all rows, with the shape of their samples, and the commands that made them."""

import shlex

from andrea_bench.report.content import AllRows, Page, Part, Subject, Table
from andrea_bench.report.rows import Row

COLUMNS = (
    "suite", "kernel", "problem", "device", "status", "time (us)", "low (us)", "high (us)", "n",
    "ratio to baseline", "ratio low", "ratio high", "TFLOP/s", "GB/s", "validity", "reasons", "ran as", "timing",
    "cell_id", "run",
)  # fmt: skip
BINS = 12
# Beyond these an HTML file would grow past 5 MB; CSV and Parquet hold all.
MOST_ROWS = 15_000


def all_rows(subject: Subject) -> Page:
    """Every row of every Run, and the commands."""
    title = "All rows" if subject.runs else "Commands"
    made = [(run.label, shlex.join(["andrea-bench", *run.head.arguments])) for run in subject.runs]
    commands = Table("The commands that made it", ("of", "command"), [*made, ("this report", subject.command)])
    every = [(run.label, row) for run in subject.runs for row in run.rows()]
    shown = every[:MOST_ROWS]
    parts: list[Part] = []
    if shown:
        shapes = [shape(row.record.samples_us) if row.median_us is not None else "" for _, row in shown]
        parts.append(AllRows(COLUMNS, [_values(label, row) for label, row in shown], shapes))
    if len(every) > len(shown):
        parts.append(f"{len(every) - len(shown)} of {len(every)} rows are hidden; `report --csv` writes all.")
    return Page("all-rows", title, [*parts, commands])


def _values(label: str, row: Row) -> tuple[str | float | int | None, ...]:
    record, ratio = row.record, row.to_baseline
    reasons = "; ".join(record.validity.reasons) if row.median_us is not None else record.reason
    return (
        record.suite, record.kernel, record.problem.label(), record.device, record.status,
        _digits(row.median_us), _digits(row.low_us), _digits(row.high_us), len(record.samples_us),
        _digits(ratio.ratio if ratio else None), _digits(ratio.low if ratio else None),
        _digits(ratio.high if ratio else None), _digits(row.tflops), _digits(row.gb_per_s),
        record.validity.verdict, reasons, record.selected_backend,
        f"{record.timing_mode}, {record.cache}" if record.timing_mode else None, record.cell_id,
        label,
    )  # fmt: skip


def _digits(value: float | None) -> float | None:
    """Six significant digits: more than any timing carries, and a third of the file."""
    return None if value is None else float(f"{value:.6g}")


def shape(samples: list[float]) -> str:
    """Counts of samples in equal bins from the least to the greatest, a digit a bin, 9 the fullest."""
    if not samples:
        return ""
    low, high = min(samples), max(samples)
    counts = [0] * BINS
    for sample in samples:
        counts[min(BINS - 1, int(BINS * (sample - low) / (high - low))) if high > low else BINS // 2] += 1
    fullest = max(counts)
    # A bin that holds anything shows.
    return "".join(str(max(1, round(9 * count / fullest)) if count else 0) for count in counts)
