"""Very many cells in one table: of a large Run, or of the Parquet copy that `report` made of one or several.

A table a Group says nothing any more when there are thousands; here is one line for each suite and kernel. No more
than the medians of the cells is kept.
"""

from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from andrea_bench.errors import BadInput
from andrea_bench.report.scan import SCHEMA, scan_records
from andrea_bench.report.words import duration
from andrea_bench.store import RECORDS

# Above this size of records.jsonl, some 5,000 records, `show` gives the overview unless all tables are asked for:
# more than a thousand of them nobody reads, and to lay them out takes longer than to read a million records.
LARGE_BYTES = 8 * 2**20
BY = ("suite", "kernel", "device", "status")


def is_large(folder: Path) -> bool:
    """Whether the Run in `folder` is for the overview."""
    file = folder / RECORDS
    return file.exists() and file.stat().st_size > LARGE_BYTES


def run_overview(folder: Path) -> pl.DataFrame:
    """`overview` of a Run. Raises BadInput naming the line that can't be read."""
    return overview(scan_records(folder))


def parquet_overview(file: Path) -> pl.DataFrame:
    """`overview` of what `report --parquet` wrote. Raises BadInput for any other file."""
    try:
        cells = pl.scan_parquet(file)
        schema = cells.collect_schema()
        if lacking := [name for name in (*BY, "n", "median_us") if schema.get(name) != SCHEMA[name]]:
            raise BadInput(f"{file}: has no column {lacking[0]} as `report --parquet` writes it")
        return overview(cells)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BadInput(f"{file}: can't be read: {' '.join(str(error).split())[:200]}") from None


def overview(cells: pl.LazyFrame) -> pl.DataFrame:
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
    return cells.select(*BY, "n", "median_us").group_by(BY).agg(*figures).sort(BY).collect(engine="streaming")


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
        table.add_row(*(Text(str(text)) for text in (*(row[head] for head in heads), *figures)))
    console.print(table)
    console.print(f"{frame['cells'].sum():,} cells; medians of cells of all sizes (measured).")
