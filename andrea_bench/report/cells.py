"""Cells of Runs as one table without raw samples, for other tools: CSV and Parquet.

Read lazily by polars, so that the samples of a Run need not fit in memory; ratios that need pairs of samples are
on the pages.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from andrea_bench.errors import BadInput
from andrea_bench.problem import SIZES, Problem
from andrea_bench.statistics import median_interval
from andrea_bench.store import RECORDS, run_folder
from andrea_bench.suite import suites

PROBLEM: dict[str, Any] = {
    name: pl.Int64 if name in SIZES else pl.Boolean if name == "causal" else pl.String
    for name in Problem.__struct_fields__
}
# What is read of a Record; polars skips the rest.
READ: dict[str, Any] = {
    **dict.fromkeys(("cell_id", "suite", "op", "kernel", "device", "status", "reason"), pl.String),
    "problem": pl.Struct(PROBLEM),
    "samples_us": pl.List(pl.Float64),
    **dict.fromkeys(("timing_mode", "cache", "selected_backend", "started_at"), pl.String),
    **dict.fromkeys(("flops", "min_bytes", "peak_memory_bytes"), pl.Int64),
    **dict.fromkeys(("relative_error", "tolerance", "compile_seconds"), pl.Float64),
    "validity": pl.Struct({"verdict": pl.String, "reasons": pl.List(pl.String)}),
    "code": pl.Struct({"git_commit": pl.String, "dirty": pl.Boolean, "kernel_source_hash": pl.String}),
}
# Only what does the same work in one Group is compared with its baseline.
SAME_WORK = ("suite", *PROBLEM, "device", "timing_mode", "cache", "op", "flops")


def csv(paths: Sequence[Path]) -> bytes:
    """The cells of these Runs as CSV: UTF-8, one head, lines that end in a single line feed."""
    return _collected(paths).write_csv().encode()


def parquet(paths: Sequence[Path]) -> bytes:
    """The cells of these Runs as Parquet."""
    out = io.BytesIO()
    _collected(paths).write_parquet(out)
    return out.getvalue()


def _collected(paths: Sequence[Path]) -> pl.DataFrame:
    try:
        return pl.concat([_cells(run_folder(path)) for path in paths]).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        cause = " ".join(str(error).split())[:200]
        raise BadInput(f"{', '.join(map(str, paths))}: can't be read: {cause}; `show` names the line") from None


def _cells(folder: Path) -> pl.LazyFrame:
    """One row a Record: sizes, status, n, median and its 95 % interval (us), rates, validity, and the median over
    the baseline's of the same Group and work (of medians: not paired)."""
    file = folder / RECORDS
    records = pl.LazyFrame(schema=READ)
    if file.exists() and file.stat().st_size:
        records = pl.scan_ndjson(file, schema=READ, infer_schema_length=None)
    baselines = pl.DataFrame(
        [(name, suite.baseline) for name, suite in suites().items()], schema=["suite", "kernel"], orient="row"
    )  # fmt: skip
    ordered, n = pl.col("samples_us").list.sort(), pl.col("n")
    timed = (
        records.unnest("problem")
        .with_columns(pl.col("samples_us").list.len().cast(pl.Int64).alias("n"))
        .with_columns(
            pl.col("samples_us").list.median().alias("median_us"),
            ordered.list.get(n.map_batches(_low_index, return_dtype=pl.Int64), null_on_oob=True).alias("low_us"),
            ordered.list.get(n.map_batches(_high_index, return_dtype=pl.Int64), null_on_oob=True).alias("high_us"),
            pl.col("validity").struct.field("verdict").alias("validity"),
            pl.col("validity").struct.field("reasons").list.join("; ").alias("validity_reasons"),
        )
        .drop("samples_us")
        .unnest("code")
    )
    of_baseline = timed.join(baselines.lazy(), on=["suite", "kernel"], how="semi").select(
        *SAME_WORK, pl.col("median_us").alias("baseline_median_us")
    )
    return (
        timed.join(of_baseline, on=SAME_WORK, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(
            (pl.col("median_us") / pl.col("baseline_median_us")).alias("median_over_baseline"),
            pl.when(pl.col("flops") > 0).then(pl.col("flops") / pl.col("median_us") / 1e6).alias("tflops"),
            (pl.col("min_bytes") / pl.col("median_us") / 1e3).alias("gb_per_s"),
            pl.lit(str(folder)).alias("run"),
        )
        .drop("baseline_median_us")
    )


def _low_index(counts: pl.Series) -> pl.Series:
    """Where the lower bound of the median's interval lies among so many sorted samples; null among none."""
    return counts.replace_strict({n: int(median_interval(range(n))[0]) for n in counts.unique() if n}, default=None)


def _high_index(counts: pl.Series) -> pl.Series:
    return counts.replace_strict({n: int(median_interval(range(n))[1]) for n in counts.unique() if n}, default=None)
