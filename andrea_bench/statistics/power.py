"""What data could have shown: the smallest detectable change, and how many more units would settle a case."""

import math
from statistics import NormalDist

from andrea_bench.statistics.ratios import Ratio

POWER = 0.8
MOST_UNITS = 1000


def smallest_detectable_change(found: Ratio, allowance: float, confidence: float) -> float | None:
    """The smallest slowdown (0.03 is 3 %) that data of this number and noise would have shown to lie beyond
    `allowance` in four of five cases; None where their number can't reach `confidence` at all.

    The interval's half width is taken as so many standard errors as the normal distribution gives for
    `confidence`, and the chance of 80 % adds 0.84 of them."""
    if found.confidence < confidence - 1e-9:
        return None
    half = (math.log(found.high) - math.log(found.low)) / 2
    return math.exp(half * _with_power(confidence)) * (1 + allowance) - 1


def units_needed(found: Ratio, allowance: float, confidence: float, *, paired: bool) -> int | None:
    """About how many units a side would settle in four of five cases on which side of `allowance` the ratio lies,
    if it is the one found and widths shrink with the square root; None for more than a thousand."""
    least = least_units(confidence, paired=paired)
    if found.n < 2 or found.confidence < confidence - 1e-9:
        return least
    distance = abs(math.log(found.ratio) - math.log1p(allowance))
    # As above: at the half width alone the interval would end at the allowance, and settle it in one of two cases.
    half = (math.log(found.high) - math.log(found.low)) / 2 * _with_power(confidence)
    if distance * math.sqrt(MOST_UNITS) <= half * math.sqrt(found.n):
        return None
    return max(least, found.n + 1, math.ceil(found.n * (half / distance) ** 2))


def _with_power(confidence: float) -> float:
    """How many half widths a change must lie beyond a border to be shown in four of five cases."""
    return 1 + NormalDist().inv_cdf(POWER) / NormalDist().inv_cdf((1 + confidence) / 2)


def least_units(confidence: float, *, paired: bool) -> int:
    """The fewest units a side whose rank interval can reach `confidence`: fewer can never decide."""
    level, units = (1 - confidence) * (1 + 1e-9), 2
    while 2 / (2**units if paired else math.comb(2 * units, units)) > level:
        units += 1
    return units
