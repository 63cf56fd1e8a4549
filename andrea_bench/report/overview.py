"""A Run of very many records in one table, read by polars in a stream: no more than medians is kept.

A table a Group says nothing any more when there are thousands; here is one line for each suite and kernel.
"""

from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from andrea_bench.errors import BadInput
from andrea_bench.report.words import duration
from andrea_bench.store import RECORDS

# Above this size of records.jsonl, `show` gives the overview unless all tables are asked for.
LARGE_BYTES = 64 * 2**20
# What the overview needs of a Record; polars skips the rest.
COLUMNS: dict[str, pl.DataType] = {
    "suite": pl.String(),
    "kernel": pl.String(),
    "device": pl.String(),
    "status": pl.String(),
    "samples_us": pl.List(pl.Float64()),
}


def is_large(folder: Path) -> bool:
    """Whether the Run in `folder` is for the overview."""
    file = folder / RECORDS
    return file.exists() and file.stat().st_size > LARGE_BYTES


def overview(folder: Path) -> pl.DataFrame:
    """One row for each suite, kernel, device and status: cells, samples, and the quartiles of the cells' medians
    in microseconds. Raises BadInput where polars can't read the file (a Run that `show` names the line of)."""
    file = folder / RECORDS
    medians = pl.col("samples_us").list.median().alias("median_us")
    samples = pl.col("samples_us").list.len().alias("samples")
    try:
        return (
            pl.scan_ndjson(file, schema=COLUMNS, infer_schema_length=None)
            .select("suite", "kernel", "device", "status", samples, medians)
            .group_by("suite", "kernel", "device", "status")
            .agg(
                pl.len().alias("cells"),
                pl.col("samples").sum(),
                pl.col("median_us").quantile(0.25).alias("q25_us"),
                pl.col("median_us").median(),
                pl.col("median_us").quantile(0.75).alias("q75_us"),
            )
            .sort("suite", "kernel", "device", "status")
            .collect(engine="streaming")
        )
    except pl.exceptions.PolarsError as error:
        raise BadInput(f"{file}: can't be read: {' '.join(str(error).split())[:200]}; try show --all") from None


def print_overview(console: Console, folder: Path) -> None:
    """The overview as a table that fits 80 columns."""
    frame = overview(folder)
    table = Table(box=None)
    for head in ("suite", "kernel", "status"):
        table.add_column(head, overflow="fold")
    for head in ("cells", "samples", "25 %", "median", "75 %"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in frame.iter_rows(named=True):
        figures = (f"{row['cells']:,}", f"{row['samples']:,}",
                   duration(row["q25_us"]), duration(row["median_us"]), duration(row["q75_us"]))  # fmt: skip
        table.add_row(*(Text(str(t)) for t in (row["suite"], row["kernel"], row["status"], *figures)))
    console.print(table)
    console.print(f"{frame['cells'].sum():,} cells; medians of cells of all sizes (measured). --all shows each group.")
