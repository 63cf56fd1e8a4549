"""Cells of Runs as one table without raw samples, for other tools: CSV and Parquet.

The samples of a Run need not fit in memory; ratios that need pairs of samples are on the pages.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from andrea_bench.report.scan import PROBLEM, scan_records
from andrea_bench.store import run_folder
from andrea_bench.suite import suites

# Only what does the same work in one Group is compared with its baseline.
SAME_WORK = ("suite", *PROBLEM, "device", "timing_mode", "cache", "op", "flops", "min_bytes")


def csv(paths: Sequence[Path]) -> bytes:
    """The cells of these Runs as CSV: UTF-8, one head, lines that end in a single line feed."""
    return _collected(paths).write_csv().encode()


def parquet(paths: Sequence[Path]) -> bytes:
    """The cells of these Runs as Parquet."""
    out = io.BytesIO()
    _collected(paths).write_parquet(out)
    return out.getvalue()


def _collected(paths: Sequence[Path]) -> pl.DataFrame:
    """Raises BadInput naming the line that can't be read."""
    return pl.concat([_cells(run_folder(path)) for path in paths]).collect(engine="streaming")


def _cells(folder: Path) -> pl.LazyFrame:
    """One row a Record: sizes, status, n, median and its 95 % interval (us), rates, validity, and the median over
    the baseline's of the same Group and work (of medians: not paired)."""
    # The table is read once, though it is joined with its own baselines.
    cells = scan_records(folder).collect(engine="streaming").lazy()
    baselines = pl.DataFrame(
        [(name, suite.baseline) for name, suite in suites().items()], schema=["suite", "kernel"], orient="row"
    )  # fmt: skip
    of_baseline = cells.join(baselines.lazy(), on=["suite", "kernel"], how="semi").select(
        *SAME_WORK, pl.col("median_us").alias("baseline_median_us")
    )
    return (
        cells.join(of_baseline, on=SAME_WORK, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(
            (pl.col("median_us") / pl.col("baseline_median_us")).alias("median_over_baseline"),
            pl.when(pl.col("flops") > 0).then(pl.col("flops") / pl.col("median_us") / 1e6).alias("tflops"),
            (pl.col("min_bytes") / pl.col("median_us") / 1e3).alias("gb_per_s"),
            pl.lit(_text(folder)).alias("run"),
        )
        .drop("baseline_median_us")
    )


def _text(path: Path) -> str:
    """A path may hold bytes that are no UTF-8, a table's text may not."""
    return str(path).encode(errors="backslashreplace").decode()
