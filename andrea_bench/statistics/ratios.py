"""Ratios of times with rank intervals: Hodges-Lehmann shifts of log times, paired and unpaired.

Of the intervals tried under A/A with spikes (bootstrap, t, Hodges-Lehmann) these were the narrowest, and
they need no random numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from andrea_bench.statistics.ranks import (
    rank_sum_bound,
    rank_sum_confidence,
    signed_rank_bound,
    signed_rank_confidence,
)
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


def paired_ratio(
    numerator: Sequence[float],
    denominator: Sequence[float],
    blocks: Sequence[int] | None = None,
    confidence: float = 0.95,
) -> Ratio:
    """Ratio of paired times (numerator[i] with denominator[i]: same block, same round).

    blocks: the process or time block of each pair; None is one block. Within one block: the Hodges-Lehmann
    centre of the log ratios with its signed-rank interval. With several, the block is the unit: the centres
    of the blocks, and the same of them. Raises ValueError of no pairs, unequal lengths or a time that is
    not positive and finite."""
    logs = [_log(a) - _log(b) for a, b in zip(numerator, denominator, strict=True)]
    if not logs:
        raise ValueError("the ratio of no pairs")
    by_block: dict[int, list[float]] = {}
    for block, value in zip([0] * len(logs) if blocks is None else blocks, logs, strict=True):
        by_block.setdefault(block, []).append(value)
    if len(by_block) == 1:
        return centre_of_logs(logs, confidence)
    return centre_of_logs([walsh_centre(values) for values in by_block.values()], confidence)


def centre_of_logs(logs: Sequence[float], confidence: float = 0.95) -> Ratio:
    """The Hodges-Lehmann centre of log ratios with its signed-rank interval, as a Ratio."""
    ordered = sorted(logs)
    sums = PairSums(ordered, ordered, upper=True)
    n = len(ordered)
    rank = max(1, signed_rank_bound(n, confidence))
    low, high = sums.smallest(rank) / 2, sums.smallest(sums.count + 1 - rank) / 2
    reached = signed_rank_confidence(n, rank)
    return Ratio(math.exp(sums.median() / 2), math.exp(low), math.exp(high), n, reached)


def walsh_centre(values: Sequence[float]) -> float:
    """The Hodges-Lehmann centre: the median of the averages of all pairs, each value with itself included."""
    ordered = sorted(values)
    return PairSums(ordered, ordered, upper=True).median() / 2


def unpaired_ratio(numerator: Sequence[float], denominator: Sequence[float], confidence: float = 0.95) -> Ratio:
    """Ratio of two independent sets of times (one a unit of replication each: process medians).

    The Hodges-Lehmann shift of the logs: the median of all differences, with the Mann-Whitney interval.
    Raises ValueError of an empty side or a time that is not positive and finite."""
    if not numerator or not denominator:
        raise ValueError("the ratio of no times")
    above = sorted(_log(value) for value in numerator)
    below = sorted(-_log(value) for value in denominator)
    n, m = len(above), len(below)
    sums = PairSums(above, below)
    rank = max(1, rank_sum_bound(n, m, confidence))
    low, high = sums.smallest(rank), sums.smallest(sums.count + 1 - rank)
    reached = rank_sum_confidence(n, m, rank)
    return Ratio(math.exp(sums.median()), math.exp(low), math.exp(high), min(n, m), reached)


def _log(time: float) -> float:
    if not 0 < time < math.inf:
        raise ValueError(f"a time of {time} is not positive and finite")
    return math.log(time)
