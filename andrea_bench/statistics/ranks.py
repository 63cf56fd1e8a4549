"""Exact null distributions of the two rank statistics, and the ranks that bound their intervals."""

import math
from functools import lru_cache
from statistics import NormalDist

EXACT_UP_TO = 50  # values (signed rank) or values on either side (rank sum); beyond, the normal approximation


@lru_cache(maxsize=4096)
def signed_rank_bound(n: int, confidence: float) -> int:
    """Greatest k for which the k-th smallest and k-th largest of the n(n+1)/2 Walsh averages hold the centre
    with `confidence`; 0 where even the extremes don't."""
    if n > EXACT_UP_TO:
        sd = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return _approximate(n * (n + 1) / 4, sd, confidence)
    return _bound(signed_rank_counts(n), confidence)


def signed_rank_confidence(n: int, rank: int) -> float:
    """Confidence of the interval from the rank-th smallest to the rank-th largest Walsh average."""
    if n > EXACT_UP_TO:
        sd = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return 1 - 2 * NormalDist(n * (n + 1) / 4, sd).cdf(rank - 0.5)
    return 1 - 2 * sum(signed_rank_counts(n)[:rank]) / 2**n


@lru_cache(maxsize=4096)
def rank_sum_bound(n: int, m: int, confidence: float) -> int:
    """The same for the n*m differences of two samples (Mann-Whitney)."""
    if max(n, m) > EXACT_UP_TO:
        return _approximate(n * m / 2, math.sqrt(n * m * (n + m + 1) / 12), confidence)
    return _bound(rank_sum_counts(n, m), confidence)


def rank_sum_confidence(n: int, m: int, rank: int) -> float:
    """Confidence of the interval from the rank-th smallest to the rank-th largest of the n*m differences."""
    if max(n, m) > EXACT_UP_TO:
        return 1 - 2 * NormalDist(n * m / 2, math.sqrt(n * m * (n + m + 1) / 12)).cdf(rank - 0.5)
    return 1 - 2 * sum(rank_sum_counts(n, m)[:rank]) / math.comb(n + m, n)


@lru_cache(maxsize=256)
def signed_rank_counts(n: int) -> tuple[int, ...]:
    """How many of the 2**n equally likely sign patterns give each sum of positive ranks, 0 to n(n+1)/2."""
    counts = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for total in range(len(counts) - 1, rank - 1, -1):
            counts[total] += counts[total - rank]
    return tuple(counts)


@lru_cache(maxsize=256)
def rank_sum_counts(n: int, m: int) -> tuple[int, ...]:
    """How many of the C(n+m, n) equally likely orders give each Mann-Whitney U, 0 to n*m.

    The coefficients of the Gaussian binomial: the product of (1 - q**(m+i)) / (1 - q**i) for i = 1 to n."""
    counts = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for u in range(n * m, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, n * m + 1):
            counts[u] += counts[u - i]
    return tuple(counts)


def _bound(counts: tuple[int, ...], confidence: float) -> int:
    # The sum of the counts is a power of two or a binomial coefficient; a hair is left for the float.
    allowed = (1 - confidence) / 2 * sum(counts) * (1 + 1e-12)
    below = 0
    for rank, count in enumerate(counts):
        below += count
        if below > allowed:
            return rank
    return len(counts)


def _approximate(mean: float, sd: float, confidence: float) -> int:
    return max(0, math.floor(mean + 0.5 - NormalDist().inv_cdf((1 + confidence) / 2) * sd))
