"""Ratios of times with rank intervals: Hodges-Lehmann shifts of log times, paired and unpaired.

Beside bootstrap and t intervals these were the narrowest under spikes, and they need no random numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from andrea_bench.statistics.ranks import NullDistribution, rank_sum, signed_rank
from andrea_bench.statistics.sums import PairSums


@dataclass(frozen=True)
class Ratio:
    """Time over time, with its interval.

    n: units of replication it rests on (blocks; pairs where there is one block; the smaller side where
    unpaired). confidence: what the interval reaches: less than asked for where n is too small for it (then
    the interval is the range of what was seen; 0 for n = 1), so that a reader isn't misled."""

    ratio: float
    low: float
    high: float
    n: int
    confidence: float


class Shift:
    """The shift of log times between two sides, of which a Ratio at any confidence can be had.

    parts: how many log ratios one sum is made of (2 for Walsh sums, 1 for differences)."""

    def __init__(self, sums: PairSums, parts: int, null: NullDistribution, n: int) -> None:
        self._sums, self._parts, self._null = sums, parts, null
        self.n = n

    def ratio(self, confidence: float = 0.95) -> Ratio:
        """The ratio and its interval; its range where `confidence` can't be reached."""
        sums, rank = self._sums, max(1, self._null.bound(confidence))
        low, high = sums.smallest(rank), sums.smallest(sums.count + 1 - rank)
        return Ratio(
            math.exp(sums.median() / self._parts),
            math.exp(low / self._parts),
            math.exp(high / self._parts),
            self.n,
            1 - 2 * self._null.at_most(rank - 1),
        )

    def p_above(self, ratio: float) -> float:
        """Two-sided p-value against the true ratio being at most `ratio`: it is at most 1 - confidence
        exactly where the interval of that confidence lies above `ratio`."""
        return min(1.0, 2 * self._null.at_most(self._sums.up_to(math.log(ratio) * self._parts)))


def paired_shift(logs: Sequence[float]) -> Shift:
    """Of log ratios, one a unit of replication each. Raises ValueError of none."""
    if not logs:
        raise ValueError("the ratio of no pairs")
    ordered = sorted(logs)
    return Shift(PairSums(ordered, ordered, upper=True), 2, signed_rank(len(ordered)), len(ordered))


def unpaired_shift(numerator: Sequence[float], denominator: Sequence[float]) -> Shift:
    """Of two independent sets of times, one a unit of replication each (process medians). Raises ValueError
    of an empty side or a time that is not positive and finite."""
    if not numerator or not denominator:
        raise ValueError("the ratio of no times")
    above = sorted(_log(value) for value in numerator)
    below = sorted(-_log(value) for value in denominator)
    n, m = len(above), len(below)
    return Shift(PairSums(above, below), 1, rank_sum(n, m), min(n, m))


def paired_ratio(
    numerator: Sequence[float],
    denominator: Sequence[float],
    blocks: Sequence[int] | None = None,
    confidence: float = 0.95,
) -> Ratio:
    """Ratio of paired times (numerator[i] with denominator[i]: same block, same round).

    blocks: the process or time block of each pair; None is one block. Within one block: the Hodges-Lehmann
    centre of the log ratios with its signed-rank interval. With several, the block is the unit: the same of
    the blocks' centres. Raises ValueError of no pairs, unequal lengths or a time that is not positive and
    finite."""
    return paired_shift(unit_logs(numerator, denominator, blocks)).ratio(confidence)


def unit_logs(
    numerator: Sequence[float], denominator: Sequence[float], blocks: Sequence[int] | None = None
) -> list[float]:
    """One log ratio for each unit of replication: each pair of the only block, or the centre of each block."""
    logs = [_log(a) - _log(b) for a, b in zip(numerator, denominator, strict=True)]
    by_block: dict[int, list[float]] = {}
    for block, value in zip([0] * len(logs) if blocks is None else blocks, logs, strict=True):
        by_block.setdefault(block, []).append(value)
    if len(by_block) <= 1:
        return logs
    return [centre(values) for values in by_block.values()]


def centre(values: Sequence[float]) -> float:
    """The Hodges-Lehmann centre: the median of the averages of all pairs, each value with itself included."""
    ordered = sorted(values)
    return PairSums(ordered, ordered, upper=True).median() / 2


def unpaired_ratio(numerator: Sequence[float], denominator: Sequence[float], confidence: float = 0.95) -> Ratio:
    """Ratio of two independent sets of times: the median of all differences of logs, with the Mann-Whitney
    interval. Raises as `unpaired_shift`."""
    return unpaired_shift(numerator, denominator).ratio(confidence)


def _log(time: float) -> float:
    if not 0 < time < math.inf:
        raise ValueError(f"a time of {time} is not positive and finite")
    return math.log(time)
