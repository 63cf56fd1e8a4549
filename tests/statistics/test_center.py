"""Centres and their intervals against scipy, brute force and hand calculation."""

import math
import random

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from andrea_bench.statistics import (
    drift,
    mad_outliers,
    median,
    median_confidence,
    median_interval,
    quantile,
    relative_half_width,
)

times = st.floats(1e-3, 1e9)


def test_median_of_odd_and_even_lists() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    with pytest.raises(ValueError):
        median([])


@given(st.lists(times, min_size=1, max_size=40), st.floats(0, 1))
def test_quantiles_are_those_of_numpy(values: list[float], share: float) -> None:
    assert quantile(values, share) == pytest.approx(float(numpy.quantile(values, share)), rel=1e-9)


def test_the_first_decile_of_eleven_values_is_the_second() -> None:
    assert quantile([float(i) for i in range(11)], 0.1) == 1.0
    assert quantile([5.0], 0.1) == 5.0
    with pytest.raises(ValueError):
        quantile([], 0.1)


# n -> rank k, of the classic table for 95 % (for instance Conover 1999, table of the sign test).
@pytest.mark.parametrize(("n", "rank"), [(6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (20, 6), (25, 8), (30, 10)])
def test_ranks_of_the_median_are_the_published_ones(n: int, rank: int) -> None:
    values = [float(i) for i in range(1, n + 1)]
    random.Random(n).shuffle(values)
    assert median_interval(values) == (rank, n + 1 - rank)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 10, 33, 100, 999, 1000, 1001, 5000])
def test_interval_is_the_narrowest_that_holds_the_confidence(n: int) -> None:
    low, high = median_interval([float(i) for i in range(1, n + 1)])
    rank = int(low)
    assert high == n + 1 - rank
    reached = 1 - 2 * stats.binom.cdf(rank - 1, n, 0.5)
    assert median_confidence(n) == pytest.approx(reached, abs=1e-12)
    if n >= 6:
        assert reached >= 0.95 - (2e-4 if n >= 1000 else 0)
        assert 1 - 2 * stats.binom.cdf(rank, n, 0.5) < 0.95 + (2e-3 if n >= 1000 else 0)
    else:
        assert reached < 0.95
        assert (low, high) == (1, n)


def test_coverage_of_the_interval() -> None:
    generator = random.Random(7)
    hits = 0
    for _ in range(2000):
        low, high = median_interval([generator.expovariate(1.0) for _ in range(20)])
        hits += low <= math.log(2) <= high
    assert 0.94 <= hits / 2000 <= 0.98


def test_half_width_is_unknown_before_the_confidence_can_be_reached() -> None:
    assert relative_half_width([]) == math.inf
    assert relative_half_width([5.0] * 5) == math.inf
    assert relative_half_width([5.0] * 6) == 0.0
    assert relative_half_width([10.0, 11.0, 9.0, 10.0, 10.0, 10.0]) == pytest.approx(0.1)
    assert relative_half_width([0.0] * 8) == math.inf


def test_outliers_are_counted_by_the_modified_z_score() -> None:
    assert mad_outliers([]) == 0
    assert mad_outliers([1.0]) == 0
    assert mad_outliers([10.0, 10.1, 9.9, 10.2, 9.8, 30.0]) == 1
    # MAD 0: the mean absolute deviation is 0.4 there, so 3.5 * 0.4 / 0.7979 = 1.75 is the limit.
    assert mad_outliers([1.0] * 9 + [5.0]) == 1
    assert mad_outliers([2.0] * 10) == 0


@given(st.lists(times, min_size=1, max_size=60))
def test_outliers_never_are_the_majority(values: list[float]) -> None:
    assert 0 <= mad_outliers(values) <= len(values) / 2


def test_drift_is_the_change_from_the_first_to_the_last_third_by_time() -> None:
    noise = random.Random(3)
    steady = [100 + noise.gauss(0, 1) for _ in range(60)]
    assert drift(steady, list(range(60))) is None
    rising = [value + 0.4 * i for i, value in enumerate(steady)]
    found = drift(rising, list(range(60)))
    assert found == pytest.approx(0.4 * 40 / 104, abs=0.02)
    # Order, not position in the list, is time.
    assert drift(rising[::-1], list(range(59, -1, -1))) == found
    assert drift([1.0, 2.0, 3.0], [0, 1, 2]) is None
    with pytest.raises(ValueError):
        drift([1.0], [0, 1])
