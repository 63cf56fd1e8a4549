"""What compare, gate and ab say: the JSON document of schema/verdict.schema.json."""

from typing import Literal

import msgspec

from andrea_bench.problem import Problem
from andrea_bench.verdicts.policy import Policy

Verdict = Literal["same", "faster", "slower", "broken", "inconclusive", "not_comparable"]
VERDICTS: tuple[Verdict, ...] = ("broken", "slower", "not_comparable", "inconclusive", "faster", "same")


class CellName(msgspec.Struct, kw_only=True):
    """A cell that only one Run has, or that was timed in neither. problem: None for a benchmark of asv's."""

    cell_id: str
    suite: str
    kernel: str
    problem: Problem | None
    reason: str | None = None


class CellVerdict(msgspec.Struct, kw_only=True):
    """The verdict on one cell, and all that it was made of. problem: None for a benchmark of asv's.

    ratio: head time over base time; low to high is its interval at `confidence`, which must be at least
    `confidence_needed` for any verdict but inconclusive. base_us, head_us: the time of each process (block), the
    policy's quantile of its samples, in order of block: the values that ratio and interval were made of.
    base_median_us, head_median_us: its medians, where that quantile is another; they keep a cell from being `same`
    whose medians are slower. allowance: 0.05 is 5 %.
    smallest_detectable_change: the slowdown that this data would have shown in four of five cases.
    invalid: a side was throttled, its times are none, or its medians are slower and its quick calls are not; no policy
    lets that pass.
    """

    cell_id: str
    suite: str
    kernel: str
    problem: Problem | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    confidence_needed: float | None = None
    allowance: float | None = None
    blocks_base: int = 0
    blocks_head: int = 0
    base_us: list[float] = []
    head_us: list[float] = []
    base_median_us: list[float] = []
    head_median_us: list[float] = []
    verdict: Verdict
    reason: str
    invalid: bool = False
    smallest_detectable_change: float | None = None
    processes_needed: int | None = None
    likely_causes: list[str] = []


class Difference(msgspec.Struct, kw_only=True):
    """Something in which the two Runs differ though they should not; name as --allow-different takes it."""

    name: str
    text: str
    allowed: bool


class Look(msgspec.Struct, kw_only=True):
    """One look of a sequential trial: after so many pairs, at which level over all cells, what it settled."""

    pairs: int
    level: float
    settled: list[str] = []


class Document(msgspec.Struct, kw_only=True):
    """The verdict on two Runs. exit_code is that of gate (DESIGN.md section 4.1); reason: why that one won."""

    verdict: Verdict
    exit_code: int
    reason: str
    policy: Policy
    differences: list[Difference] = []
    warnings: list[str] = []
    cells: list[CellVerdict] = []
    not_timed: list[CellName] = []
    only_base: list[CellName] = []
    only_head: list[CellName] = []
    looks: list[Look] = []

    def count(self, verdict: Verdict) -> int:
        """How many cells have that verdict."""
        return sum(cell.verdict == verdict for cell in self.cells)
