"""The Records of a Run as a lazy table of polars, without raw samples: their number, median and interval instead.

Lines are read one by one and only what a query asks for is decoded, so that a Run of any size needs no more memory
than its answer; a line that can't be read is named.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from polars.io.plugins import register_io_source

from andrea_bench.problem import SIZES, Problem
from andrea_bench.record import SCHEMA_VERSION, Record
from andrea_bench.statistics import median_interval
from andrea_bench.store import RECORDS, decode_record

BATCH = 4_096  # records that are held at once
BUFFER_BYTES = 2**20
PROBLEM: dict[str, Any] = {
    name: pl.Int64 if name in SIZES else pl.Boolean if name == "causal" else pl.String
    for name in Problem.__struct_fields__
}
# Column -> where it stands in a Record, and its type.
STORED: dict[str, tuple[str, Any]] = {
    **{name: (name, pl.String) for name in ("cell_id", "suite", "op", "kernel", "device", "status", "reason")},
    **{name: (f"problem.{name}", kind) for name, kind in PROBLEM.items()},
    **{name: (name, pl.String) for name in ("timing_mode", "cache", "selected_backend", "started_at")},
    **{name: (name, pl.Int64) for name in ("flops", "min_bytes", "peak_memory_bytes")},
    **{name: (name, pl.Float64) for name in ("relative_error", "tolerance", "compile_seconds")},
    "validity": ("validity.verdict", pl.String),
    "validity_reasons": ("validity.reasons", pl.String),
    **{name: (f"code.{name}", kind) for name, kind in
       (("git_commit", pl.String), ("dirty", pl.Boolean), ("kernel_source_hash", pl.String))},
}  # fmt: skip
# Column -> its type; None where there are no samples, or some that are not positive numbers.
DERIVED: dict[str, Any] = {"n": pl.Int64, **dict.fromkeys(("median_us", "low_us", "high_us"), pl.Float64)}
SCHEMA = pl.Schema({**{name: kind for name, (_, kind) in STORED.items()}, **DERIVED})


def scan_records(folder: Path) -> pl.LazyFrame:
    """One row a Record, in their order. Collecting it raises BadInput naming file and line of what can't be read."""

    def batches(
        wanted: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        left = n_rows
        for frame in _frames(folder / RECORDS, wanted or SCHEMA.names()):
            frame = frame if left is None else frame.head(left)
            left = None if left is None else left - frame.height
            yield frame if predicate is None else frame.filter(predicate)
            if left == 0:
                return

    return register_io_source(batches, schema=SCHEMA)


def _frames(file: Path, columns: list[str]) -> Iterator[pl.DataFrame]:
    derived = [name for name in columns if name in DERIVED]
    held: list[Any] = []
    timings: list[tuple[Any, ...]] = []
    for record in _records(file, columns):
        held.append(record)
        if derived:
            timings.append(_timing(record.samples_us))
            record.samples_us = []  # at once: many that live on would be slow
        if len(held) == BATCH:
            yield _frame(held, timings, columns)
            held, timings = [], []
    yield _frame(held, timings, columns)


def _frame(records: list[Any], timings: list[tuple[Any, ...]], columns: list[str]) -> pl.DataFrame:
    made: dict[str, Any] = {name: map(attrgetter(STORED[name][0]), records) for name in columns if name in STORED}
    if "validity_reasons" in made:
        made["validity_reasons"] = map("; ".join, made["validity_reasons"])
    made |= zip(DERIVED, zip(*timings, strict=True) if timings else [()] * len(DERIVED), strict=True)
    return pl.DataFrame({name: pl.Series(name, list(made[name]), SCHEMA[name]) for name in columns})


def _timing(samples_us: list[float]) -> tuple[int, float | None, float | None, float | None]:
    """What DERIVED names, of one Record; `median` and `median_interval` of the samples, sorted but once."""
    n = len(samples_us)
    samples_us.sort()
    if not n or not samples_us[0] > 0 or not sum(samples_us) < math.inf:  # a NaN makes the sum one
        return n, None, None, None
    low, high = _interval_places(n)
    return n, (samples_us[(n - 1) // 2] + samples_us[n // 2]) / 2, samples_us[low], samples_us[high]


@cache
def _interval_places(n: int) -> tuple[int, int]:
    """Where the bounds of the median's interval stand among n sorted samples."""
    low, high = median_interval(range(n))
    return int(low), int(high)


def _records(file: Path, columns: list[str]) -> Iterator[Any]:
    """The Records of a file, with no more of each than `columns` need."""
    if not file.exists():
        return
    decode = _decoder(columns)
    with open(file, "rb", buffering=BUFFER_BYTES) as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = decode(line)
                readable = record.schema_version <= SCHEMA_VERSION and line.endswith(b"\n")
            except (msgspec.DecodeError, UnicodeDecodeError):
                readable = False
            # What is odd of it is told, or leniently read, as everywhere.
            yield record if readable else decode_record(line, file, number)


def _decoder(columns: list[str]) -> Callable[[bytes], Any]:
    """Decodes of a Record what `columns` need and skips the rest."""
    paths = [STORED[name][0].split(".") for name in columns if name in STORED]
    wanted = {path[0] for path in paths} | {"schema_version"}
    if DERIVED.keys() & set(columns):
        wanted.add("samples_us")
    fields = [f for f in msgspec.structs.fields(Record) if f.name in wanted]
    # The Problem's own checks were made when it was written.
    kinds: dict[str, Any] = {"problem": _unchecked(Problem)}
    narrow = msgspec.defstruct(
        "NarrowRecord", [(f.name, kinds.get(f.name, f.type), *_default(f)) for f in fields], kw_only=True, gc=False
    )
    return msgspec.json.Decoder(narrow).decode


def _unchecked(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        kind.__name__, [(f.name, f.type) for f in msgspec.structs.fields(kind)], kw_only=True, gc=False
    )


def _default(field: msgspec.structs.FieldInfo) -> tuple[Any, ...]:
    if field.default_factory is not msgspec.NODEFAULT:
        return (msgspec.field(default_factory=field.default_factory),)
    return () if field.default is msgspec.NODEFAULT else (field.default,)
