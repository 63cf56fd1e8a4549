"""Very many cells in one table: of a large Run, or of the Parquet copy that `report` made of one or several.

A table a Group says nothing any more when there are thousands; here is one line for each suite and kernel. No more
than the medians of the cells is kept, with their verdicts and reasons.
"""

from collections import Counter
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table

from andrea_bench.errors import BadInput
from andrea_bench.report.scan import SCHEMA, scan_records
from andrea_bench.report.terminal import Tally, no_time, one_line
from andrea_bench.report.words import FIGURE, duration
from andrea_bench.store import RECORDS

# Above this size of records.jsonl, some 5,000 records, `show` gives the overview unless all tables are asked for:
# more than a thousand of them nobody reads, and to lay them out takes longer than to read a million records.
LARGE_BYTES = 8 * 2**20
BY = ("suite", "kernel", "device", "status")
NEEDED = (*BY, "n", "median_us", "reason", "validity", "validity_reasons")
OF_COPY = {**{name: SCHEMA[name] for name in (*NEEDED, "started_at")}, "run": pl.String}
MOST_RUNS = 3  # of a copy that are named
SEPARATOR = "; "  # between the reasons of a cell


def is_large(folder: Path) -> bool:
    """Whether the Run in `folder` is for the overview."""
    file = folder / RECORDS
    return file.exists() and file.stat().st_size > LARGE_BYTES


def run_cells(folder: Path) -> pl.DataFrame:
    """The cells of a Run, with the columns NEEDED. Raises BadInput naming the line that can't be read."""
    return scan_records(folder).select(NEEDED).collect(engine="streaming")


def parquet_cells(file: Path) -> tuple[pl.DataFrame, str, str]:
    """The cells that `report --parquet` wrote, when the first was measured, and where, in words. Raises BadInput for
    any other file."""
    try:
        cells = pl.scan_parquet(file)
        schema = cells.collect_schema()
        if lacking := [name for name, kind in OF_COPY.items() if schema.get(name) != kind]:
            raise BadInput(f"{file}: has no column {lacking[0]} as `report --parquet` writes it")
        return cells.select(NEEDED).collect(engine="streaming"), *_origin(cells)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BadInput(f"{file}: can't be read: {' '.join(str(error).split())[:200]}") from None


def _origin(cells: pl.LazyFrame) -> tuple[str, str]:
    """What a copy knows of its machines: when the first cell was measured; the devices, and the Runs that name them."""
    devices, runs, since = (
        cells.select(
            pl.col("device").unique().sort().implode(),
            pl.col("run").unique().sort().implode(),
            pl.col("started_at").min(),
        )
        .collect(engine="streaming")
        .row(0)
    )
    if not runs:
        return "", "an empty copy"
    more = f" and {len(runs) - MOST_RUNS} more" if len(runs) > MOST_RUNS else ""
    return str(since), f"on {', '.join(devices)}; a copy of {', '.join(runs[:MOST_RUNS])}{more}"


def overview(cells: pl.DataFrame) -> pl.DataFrame:
    """One row for each suite, kernel, device and status: cells, samples, and the quartiles of the cells' medians
    in microseconds."""
    median = pl.col("median_us")
    figures = (
        pl.len().alias("cells"),
        pl.col("n").sum().alias("samples"),
        median.quantile(0.25).alias("q25_us"),
        median.median(),
        median.quantile(0.75).alias("q75_us"),
    )
    return cells.group_by(BY).agg(*figures).sort(BY)


def tally_cells(cells: pl.DataFrame) -> Tally:
    """The cells counted, as `tally` does of Groups."""
    timed = pl.col("median_us").is_not_null()
    kinds = (
        pl.col("validity_reasons").str.split(SEPARATOR)
        .list.eval(pl.element().str.replace_all(FIGURE, "N")).list.unique()
    )  # fmt: skip
    doubts = cells.filter(timed, pl.col("validity_reasons") != "").select(kinds.alias("kind")).explode("kind")
    missing = cells.filter(~timed).group_by("status", "reason").len()
    return Tally(
        statuses=_count(cells, "status"),
        devices=_count(cells, "device"),
        verdicts=_count(cells.filter(timed), "validity"),
        doubts=_count(doubts, "kind"),
        reasons=Counter({no_time(status, reason): n for status, reason, n in missing.iter_rows()}),
    )


def _count(frame: pl.DataFrame, column: str) -> Counter[str]:
    return Counter(dict(frame.group_by(column).len().sort(column).iter_rows()))


def print_overview(console: Console, frame: pl.DataFrame) -> None:
    """The overview as a table that fits 80 columns."""
    table = Table(box=None)
    heads = ("suite", "kernel", "device", "status") if frame["device"].n_unique() > 1 else ("suite", "kernel", "status")
    for head in heads:
        table.add_column(head, overflow="fold")
    for head in ("cells", "samples", "25 %", "median", "75 %"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in frame.iter_rows(named=True):
        figures = (f"{row['cells']:,}", f"{row['samples']:,}",
                   duration(row["q25_us"]), duration(row["median_us"]), duration(row["q75_us"]))  # fmt: skip
        table.add_row(*(one_line(str(text)) for text in (*(row[head] for head in heads), *figures)))
    console.print(table)
    console.print("Medians of cells of all sizes (measured).")
