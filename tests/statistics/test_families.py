"""Holm, Benjamini-Hochberg and power against scipy, hand calculation and simulation."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from andrea_bench.statistics import (
    benjamini_hochberg,
    holm,
    least_units,
    paired_shift,
    smallest_detectable_change,
    units_needed,
)
from andrea_bench.statistics.ratios import Ratio


def test_holm_by_hand() -> None:
    # Sorted 0.001, 0.012, 0.02, 0.04 against 0.0125, 0.0167, 0.025, 0.05: all rejected.
    assert holm([0.04, 0.001, 0.012, 0.02]) == [0.05, 0.0125, pytest.approx(0.05 / 3), 0.025]
    # The first that fails stops: 0.03 > 0.025, so 0.04 is not rejected although 0.04 <= 0.05.
    levels = holm([0.04, 0.001, 0.012, 0.03])
    assert levels == [0.025, 0.0125, pytest.approx(0.05 / 3), 0.025]
    assert holm([]) == []
    assert holm([0.0]) == [0.05]


def test_benjamini_hochberg_by_hand() -> None:
    # The example of the 1995 paper (15 p-values): four are rejected at 5 %.
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459,
                0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000]  # fmt: skip
    levels = benjamini_hochberg(p_values)
    assert levels == [pytest.approx(0.05 * 4 / 15)] * 15
    assert sum(p <= level for p, level in zip(p_values, levels, strict=True)) == 4
    assert sum(p <= level for p, level in zip(p_values, holm(p_values), strict=True)) == 3


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_levels_reject_what_the_adjusted_p_values_do(p_values: list[float]) -> None:
    adjusted = stats.false_discovery_control(p_values, method="bh")
    for p, level, other in zip(p_values, benjamini_hochberg(p_values), adjusted, strict=True):
        if abs(other - 0.05) > 1e-9:
            assert (p <= level) == (other <= 0.05)
    worst, order = 0.0, sorted(range(len(p_values)), key=p_values.__getitem__)
    levels = holm(p_values)
    for i, index in enumerate(order):
        worst = max(worst, p_values[index] * (len(p_values) - i))
        if abs(worst - 0.05) > 1e-9:
            assert (p_values[index] <= levels[index]) == (worst <= 0.05)


def test_fewest_units_are_those_of_the_smallest_attainable_p_value() -> None:
    # Two-sided p at n v n: 4 -> 0.029, 3 -> 0.10; signed rank 6 -> 0.031; Holm's first step over 10, 40, 100.
    assert least_units(0.95, paired=False) == 4
    assert least_units(0.95, paired=True) == 6
    assert [least_units(1 - 0.05 / m, paired=False) for m in (10, 40, 100)] == [6, 7, 8]
    assert [least_units(1 - 0.05 / m, paired=True) for m in (10, 40, 100)] == [9, 11, 12]


def test_smallest_detectable_change_is_detected_in_four_of_five_cases() -> None:
    noise = random.Random(11)

    def shift(true: float) -> Ratio:
        return paired_shift([math.log(true) + noise.gauss(0, 0.012) for _ in range(20)]).ratio()

    changes = [smallest_detectable_change(shift(1.0), 0.01, 0.95) for _ in range(300)]
    change = sorted(c for c in changes if c is not None)[150]
    assert change == pytest.approx(0.01 + 0.0079, abs=0.0015)  # 0.79 %: the paired t's, n = 20, sd 1.2 %
    found = sum(shift(1 + change).low > 1.01 for _ in range(600)) / 600
    assert 0.72 <= found <= 0.90


def test_no_change_is_detectable_by_too_few() -> None:
    assert smallest_detectable_change(paired_shift([0.0, 0.1, 0.2]).ratio(), 0.01, 0.95) is None
    assert smallest_detectable_change(paired_shift([0.0] * 8).ratio(), 0.0, 0.95) == 0.0


def test_units_needed() -> None:
    few = paired_shift([0.01, -0.01, 0.0]).ratio()
    assert units_needed(few, 0.05, 0.95, paired=True) == 6
    # Half width 4 %, 2 % from the allowance: 40 would make it as wide as that; for 80 % of all cases
    # (1 + 0.8416 / 1.9600) ** 2 = 2.043 times as many.
    wide = Ratio(math.exp(0.03), math.exp(-0.01), math.exp(0.07), 10, 0.95)
    assert units_needed(wide, math.exp(0.05) - 1, 0.95, paired=True) in (81, 82)
    at_the_border = Ratio(1.05, 1.0, 1.1, 10, 0.95)
    assert units_needed(at_the_border, 0.05, 0.95, paired=True) is None


@pytest.mark.parametrize("true", [1.03, 1.07])
def test_as_many_units_as_are_needed_settle_four_of_five_cases(true: float) -> None:
    noise = random.Random(5)

    def shift(n: int) -> Ratio:
        return paired_shift([math.log(true) + noise.gauss(0, 0.05) for _ in range(n)]).ratio()

    # What a typical interval of 12 would ask for: 1.96 standard errors to either side of the true ratio.
    half = 1.96 * 0.05 / math.sqrt(12)
    needed = units_needed(Ratio(true, true * math.exp(-half), true * math.exp(half), 12, 0.95), 0.05, 0.95, paired=True)
    assert needed is not None
    settled = sum(found.low > 1.05 or found.high <= 1.05 for found in (shift(needed) for _ in range(300)))
    assert 0.7 <= settled / 300 <= 0.9
