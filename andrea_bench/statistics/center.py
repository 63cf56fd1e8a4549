"""The median of samples with its order-statistic interval, quantiles, outliers, and drift."""

import math
from collections.abc import Sequence
from functools import lru_cache

MAD_CUTOFF = 3.5  # modified z-score; Iglewicz and Hoaglin 1993, in NIST/SEMATECH e-Handbook 1.3.5.17
MAD_SCALE = 0.6745  # third quartile of the standard normal: makes the MAD a standard deviation (same source)
MEAN_AD_SCALE = 0.7979  # sqrt(2 / pi): mean absolute deviation of the standard normal
DRIFT_PARTS = 3


def median(values: Sequence[float]) -> float:
    """The median. Raises ValueError of an empty list."""
    return _sorted_median(sorted(values))


def _sorted_median(ordered: Sequence[float]) -> float:
    if not ordered:
        raise ValueError("the median of no values")
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies, between two of them in proportion (Hyndman and Fan 1996,
    definition 7); 0.5 is the median. Raises ValueError of an empty list."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("a quantile of no values")
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Interval of the median from the order statistics: no assumption on the distribution's shape.

    With too few values for `confidence` (under 6 for 0.95) it is their range, whose confidence is
    `median_confidence(len(values), confidence)`. Raises ValueError of an empty list.
    """
    if not values:
        raise ValueError("the interval of no values")
    ordered = sorted(values)
    rank = max(1, _rank(len(ordered), confidence))
    return ordered[rank - 1], ordered[len(ordered) - rank]


def median_confidence(n: int, confidence: float = 0.95) -> float:
    """The confidence that `median_interval` of n values reaches: at least `confidence`, or less where even
    their range holds less (0 for one value)."""
    return 1 - 2 * _tail(n, max(1, _rank(n, confidence))) / 2**n


@lru_cache(maxsize=4096)
def _rank(n: int, confidence: float) -> int:
    """Greatest k for which the k-th smallest and k-th largest of n values hold the median with `confidence`;
    0 where even the range doesn't. By the binomial distribution of how many values lie below the median."""
    allowed = (1 - confidence) / 2 * 2**n if n < 1000 else None
    if allowed is None:
        # Past a thousand the normal approximation differs by less than one rank.
        return max(0, math.floor((n + 1) / 2 - _normal_quantile((1 + confidence) / 2) * math.sqrt(n) / 2))
    below, term = 0, 1
    for k in range(n // 2 + 1):
        below += term
        if below > allowed:
            return k
        term = term * (n - k) // (k + 1)
    return n // 2


def _tail(n: int, rank: int) -> int:
    """Number of the 2**n equally likely outcomes with fewer than `rank` values below the median."""
    return sum(math.comb(n, k) for k in range(rank))


def _normal_quantile(probability: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(probability)


def relative_half_width(values: Sequence[float], confidence: float = 0.95) -> float:
    """Half of the median's interval as a share of the median: what the stop rule looks at.

    Infinite while there are too few values for `confidence`, or where the median is not positive."""
    if not values or not _rank(len(values), confidence):
        return math.inf
    ordered = sorted(values)
    rank = _rank(len(ordered), confidence)
    center = _sorted_median(ordered)
    return (ordered[len(ordered) - rank] - ordered[rank - 1]) / 2 / center if center > 0 else math.inf


def mad_outliers(values: Sequence[float]) -> int:
    """How many values lie farther than 3.5 (scaled) median absolute deviations from the median.

    They are counted and kept, never dropped. Where more than half of the values are equal (coarse timers)
    the mean absolute deviation stands in."""
    if not values:
        return 0
    center = median(values)
    distances = [abs(value - center) for value in values]
    deviation = median(distances) / MAD_SCALE
    if deviation == 0:
        deviation = sum(distances) / len(distances) / MEAN_AD_SCALE
    return sum(distance > MAD_CUTOFF * deviation for distance in distances)


def drift(values: Sequence[float], order: Sequence[int]) -> float | None:
    """Relative change from the first to the last third of the samples by time (0.03: 3 % slower at the end).

    order: position of each value in time. None where the two thirds can't be told apart: their medians'
    intervals overlap, or hold too few values (under 6 each) to have one."""
    in_time = [value for _, value in sorted(zip(order, values, strict=True))]
    part = len(in_time) // DRIFT_PARTS
    if not _rank(part, 0.95):
        return None
    first, last = in_time[:part], in_time[-part:]
    (first_low, first_high), (last_low, last_high) = median_interval(first), median_interval(last)
    start = median(first)
    if start <= 0 or (first_low <= last_high and last_low <= first_high):
        return None
    return median(last) / start - 1
