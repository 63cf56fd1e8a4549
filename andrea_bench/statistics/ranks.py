"""Null distributions of the two rank statistics, and the ranks that bound their intervals.

Signed rank: of n paired differences, by the n(n+1)/2 Walsh averages. Rank sum (Mann-Whitney): of two samples,
by their n*m differences. Exact for small samples, the normal approximation beyond.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist

EXACT_UP_TO = 50  # values, of either sample


@dataclass(frozen=True)
class NullDistribution:
    """Of the number of pairwise sums on one side of the true shift. cumulative: P(at most 0, 1, 2, ...);
    None where mean and sd of the normal approximation stand for it."""

    cumulative: tuple[float, ...] | None
    mean: float
    sd: float

    def at_most(self, count: int) -> float:
        """P(at most `count`)."""
        if count < 0:
            return 0.0
        if self.cumulative is None:
            return NormalDist(self.mean, self.sd).cdf(count + 0.5)
        return self.cumulative[min(count, len(self.cumulative) - 1)]

    def bound(self, confidence: float) -> int:
        """Greatest k for which the k-th smallest and k-th largest sum hold the shift with `confidence`; 0
        where even the extremes don't."""
        # A hair is left for the rounding of 1 - confidence.
        allowed = (1 - confidence) / 2 * (1 + 1e-9)
        if self.cumulative is None:
            rank = math.floor(self.mean + 0.5 + NormalDist().inv_cdf(allowed) * self.sd) if allowed > 0 else 0
            return max(0, rank)
        return bisect_right(self.cumulative, allowed)


@lru_cache(maxsize=256)
def signed_rank(n: int) -> NullDistribution:
    """The distribution for n paired differences."""
    mean, sd = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    if n > EXACT_UP_TO:
        return NullDistribution(None, mean, sd)
    return NullDistribution(_cumulative(signed_rank_counts(n)), mean, sd)


@lru_cache(maxsize=1024)
def rank_sum(n: int, m: int) -> NullDistribution:
    """The distribution for samples of n and m values."""
    mean, sd = n * m / 2, math.sqrt(n * m * (n + m + 1) / 12)
    if max(n, m) > EXACT_UP_TO:
        return NullDistribution(None, mean, sd)
    return NullDistribution(_cumulative(rank_sum_counts(n, m)), mean, sd)


def _cumulative(counts: list[int]) -> tuple[float, ...]:
    whole = sum(counts)
    return tuple(below / whole for below in accumulate(counts))


def signed_rank_counts(n: int) -> list[int]:
    """How many of the 2**n equally likely sign patterns give each sum of positive ranks, 0 to n(n+1)/2."""
    counts = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for total in range(len(counts) - 1, rank - 1, -1):
            counts[total] += counts[total - rank]
    return counts


def rank_sum_counts(n: int, m: int) -> list[int]:
    """How many of the C(n+m, n) equally likely orders give each Mann-Whitney U, 0 to n*m.

    The coefficients of the Gaussian binomial: the product of (1 - q**(m+i)) / (1 - q**i) for i = 1 to n."""
    counts = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for u in range(n * m, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, n * m + 1):
            counts[u] += counts[u - i]
    return counts
