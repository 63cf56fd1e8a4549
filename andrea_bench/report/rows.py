"""From Records to the figures that reports show: medians, intervals, rates, paired ratios.

All derived on reading; plain Python, so that a machine without polars shows its sweep's tables.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from andrea_bench.errors import BadInput
from andrea_bench.problem import Problem
from andrea_bench.record import TIMED, Record
from andrea_bench.statistics import Ratio, median, median_interval, paired_ratio
from andrea_bench.suite import find_suite


@dataclass
class Row:
    """One Record with what follows from its samples. Without samples, the figures are None."""

    record: Record
    median_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    to_baseline: Ratio | None = None

    @property
    def half_width(self) -> float | None:
        """Half of the median's interval as a share of the median."""
        if self.median_us is None or self.low_us is None or self.high_us is None:
            return None
        return (self.high_us - self.low_us) / 2 / self.median_us

    @property
    def launch_us(self) -> float | None:
        """Median of the host's time to launch the call, where a device clock took the other one."""
        return median(self.record.host_us) if self.record.host_us else None

    @property
    def tflops(self) -> float | None:
        """Useful TFLOP/s, by the Problem's FLOP count; None for a copy."""
        if self.median_us is None or not self.record.flops:
            return None
        return self.record.flops / self.median_us / 1e6

    @property
    def gb_per_s(self) -> float | None:
        """GB/s of the bytes that must be moved."""
        return None if self.median_us is None else self.record.min_bytes / self.median_us / 1e3


@dataclass
class GroupRows:
    """The rows of one Group: one suite, Problem, device, timing mode and cache state."""

    suite: str
    problem: Problem
    device: str
    rows: list[Row] = field(default_factory=list)

    def row(self, kernel: str) -> Row | None:
        """The row of that kernel, if it has samples."""
        return next((r for r in self.rows if r.record.kernel == kernel and r.median_us is not None), None)


def group_rows(records: Iterable[Record]) -> list[GroupRows]:
    """Rows by Group, in the order of the records, each with its paired ratio to the suite's baseline."""
    groups: dict[tuple[object, ...], GroupRows] = {}
    for record in records:
        cells = (record.suite, record.problem, record.device)
        group = groups.setdefault(cells, GroupRows(*cells))
        group.rows.append(_row(record))
    for group in groups.values():
        _add_ratios(group)
    return list(groups.values())


def _row(record: Record) -> Row:
    if record.status not in TIMED or not record.samples_us:
        return Row(record)
    if not all(0 < us < math.inf for us in record.samples_us):
        # Written by something else: nothing follows from such samples.
        record.reason = record.reason or "its samples are not all positive numbers"
        return Row(record)
    record.samples_us = list(map(float, record.samples_us))  # a caller's may be scalars of numpy or torch
    low, high = median_interval(record.samples_us)
    return Row(record, median(record.samples_us), low, high)


def _add_ratios(group: GroupRows) -> None:
    baseline = group.row(_baseline(group.suite))
    if baseline is None:
        return
    for row in group.rows:
        # Only what does the same work is compared: not a stage with the whole, nor a copy with an attention.
        same_work = _work(row.record) == _work(baseline.record)
        if row.median_us is not None and row is not baseline and same_work:
            row.to_baseline = ratio(row, baseline)


def _work(record: Record) -> tuple[object, ...]:
    """What a cell does: Q K^T and a causal attention have the same FLOPs, and not the same bytes."""
    return record.op, record.flops, record.min_bytes


def _baseline(suite: str) -> str:
    """The suite's baseline; a Run may hold suites that this version doesn't know, shown without ratios."""
    try:
        return find_suite(suite).baseline
    except BadInput:
        return ""


def ratio(row: Row, against: Row) -> Ratio | None:
    """Time of `row` over time of `against`, from the samples of equal block and round. None without pairs."""
    theirs = {pair: us for pair, us in _paired(against.record)}
    pairs = [(us, theirs[pair], pair[0]) for pair, us in _paired(row.record) if pair in theirs]
    if not pairs:
        return None
    mine, others, blocks = zip(*pairs, strict=True)
    return paired_ratio(list(mine), list(others), list(blocks))


def _paired(record: Record) -> Iterator[tuple[tuple[int, int], float]]:
    """Samples by (block, round); none where an older or other writer left these out."""
    return zip(zip(record.block, record.round, strict=False), record.samples_us, strict=False)


def varying_fields(problems: Sequence[Problem]) -> list[str]:
    """The fields of Problem in which these differ."""
    return [f for f in Problem.__struct_fields__ if len({getattr(p, f) for p in problems}) > 1]
