"""Paired and unpaired ratios against scipy and brute force."""

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from andrea_bench.statistics import paired_ratio, paired_shift, unpaired_ratio, unpaired_shift
from andrea_bench.statistics.ranks import rank_sum, rank_sum_counts, signed_rank, signed_rank_counts
from andrea_bench.statistics.sums import PairSums

coarse = st.integers(-20, 20).map(float)
fine = st.floats(-5, 5)


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.lists(coarse, min_size=1, max_size=90), st.lists(fine, min_size=1, max_size=90)), st.data())
def test_order_statistics_of_sums_are_those_of_the_sums(values: list[float], data: st.DataObject) -> None:
    values.sort()
    walsh = sorted(values[i] + values[j] for i in range(len(values)) for j in range(i, len(values)))
    sums = PairSums(values, values, upper=True)
    rank = data.draw(st.integers(1, len(walsh)))
    assert sums.count == len(walsh)
    assert sums.smallest(rank) == pytest.approx(walsh[rank - 1], abs=1e-14)
    others = sorted(data.draw(st.lists(fine, min_size=1, max_size=90)))
    every = sorted(a + b for a in values for b in others)
    rank = data.draw(st.integers(1, len(every)))
    assert PairSums(values, others).smallest(rank) == pytest.approx(every[rank - 1], abs=1e-14)


def test_order_statistics_of_many_equal_sums() -> None:
    values = [1.0] * 300 + [2.0] * 300
    sums = PairSums(values, values, upper=True)
    equal = 300 * 301 // 2
    assert [sums.smallest(k) for k in (1, equal, equal + 1, sums.count - equal, sums.count)] == [2, 2, 3, 3, 4]
    with pytest.raises(ValueError):
        sums.smallest(0)


# Two-sided critical values at 5 %, as in every table of the signed-rank test (W <= table value rejects).
@pytest.mark.parametrize(("n", "critical"), [(6, 0), (7, 2), (8, 3), (10, 8), (15, 25), (20, 52), (25, 89)])
def test_signed_rank_bounds_are_the_published_ones(n: int, critical: int) -> None:
    assert signed_rank(n).bound(0.95) == critical + 1


@pytest.mark.parametrize(("n", "m", "critical"), [(4, 4, 0), (5, 5, 2), (6, 6, 5), (8, 8, 13), (10, 10, 23)])
def test_rank_sum_bounds_are_the_published_ones(n: int, m: int, critical: int) -> None:
    assert rank_sum(n, m).bound(0.95) == critical + 1


def test_null_distributions_by_enumeration() -> None:
    signed = [sum(r for r, plus in zip(range(1, 8), signs, strict=True) if plus)
              for signs in itertools.product((0, 1), repeat=7)]  # fmt: skip
    assert list(signed_rank_counts(7)) == [signed.count(t) for t in range(29)]
    u = [sum(a > b for a in chosen for b in set(range(9)) - set(chosen))
         for chosen in itertools.combinations(range(9), 4)]  # fmt: skip
    assert list(rank_sum_counts(4, 5)) == [u.count(t) for t in range(21)]
    assert sum(rank_sum_counts(50, 37)) == math.comb(87, 37)


def test_approximate_bounds_join_the_exact_ones() -> None:
    exact = signed_rank_counts(60)
    below = sum(exact[: signed_rank(60).bound(0.95)]) / 2**60
    assert 0.024 < below <= 0.0253
    counts = rank_sum_counts(60, 60)
    below = sum(counts[: rank_sum(60, 60).bound(0.95)]) / math.comb(120, 60)
    assert 0.024 < below <= 0.0253


def test_interval_holds_exactly_the_shifts_that_scipy_does_not_reject() -> None:
    noise = random.Random(1)
    logs = [noise.gauss(0.03, 0.02) for _ in range(14)]
    found = paired_shift(logs).ratio()
    for shift, rejected in [(math.log(found.low) - 1e-9, True), (math.log(found.low) + 1e-9, False),
                            (math.log(found.high) + 1e-9, True), (math.log(found.high) - 1e-9, False)]:  # fmt: skip
        p = stats.wilcoxon([value - shift for value in logs], method="exact").pvalue
        assert (p <= 0.05) == rejected
    above, below = [noise.lognormvariate(0.1, 0.1) for _ in range(9)], [noise.lognormvariate(0, 0.1) for _ in range(11)]
    found = unpaired_ratio(above, below)
    for ratio, rejected in [(found.low * (1 - 1e-9), True), (found.low * (1 + 1e-9), False),
                            (found.high * (1 + 1e-9), True), (found.high * (1 - 1e-9), False)]:  # fmt: skip
        p = stats.mannwhitneyu([value / ratio for value in above], below, method="exact").pvalue
        assert (p <= 0.05) == rejected


def test_p_values_are_those_of_scipy_and_agree_with_the_intervals() -> None:
    noise = random.Random(2)
    for n in (5, 9, 30, 60):
        logs = [noise.gauss(0.02, 0.02) for _ in range(n)]
        shift = paired_shift(logs)
        for ratio in (1.0, 1.01, 1.02, 1.05):
            method = "exact" if n <= 50 else "approx"
            there = stats.wilcoxon([v - math.log(ratio) for v in logs], alternative="greater", method=method,
                                   correction=True)  # fmt: skip
            p = shift.p_above(ratio)
            assert p == pytest.approx(min(1, 2 * there.pvalue), abs=1e-9)
            for confidence in (0.8, 0.95, 0.999):
                found = shift.ratio(confidence)
                if found.confidence >= confidence - 1e-9:
                    assert (found.low > ratio) == (p <= (1 - confidence) * (1 + 1e-9))
    above = [noise.lognormvariate(0.1, 0.1) for _ in range(7)]
    below = [noise.lognormvariate(0, 0.1) for _ in range(8)]
    there = stats.mannwhitneyu([v / 1.01 for v in above], below, alternative="greater", method="exact")
    assert unpaired_shift(above, below).p_above(1.01) == pytest.approx(min(1, 2 * there.pvalue))


def test_paired_ratio_takes_the_pairs() -> None:
    base = [100.0, 200.0, 50.0, 400.0, 120.0, 90.0, 300.0, 75.0]
    found = paired_ratio([1.1 * value for value in base], base)
    assert found.ratio == pytest.approx(1.1)
    assert (found.low, found.high) == (pytest.approx(1.1), pytest.approx(1.1))
    assert found.n == 8
    assert found.confidence == pytest.approx(1 - 2 * 5 / 256)  # 3 + 1 of the sums 0, 1, 2, 3: counts 1, 1, 1, 2


def test_the_block_is_the_unit_where_there_are_several() -> None:
    """Many pairs that agree within each of three blocks say no more than three."""
    base, head, blocks = [], [], []
    for block, factor in enumerate((0.98, 1.0, 1.03)):
        for i in range(200):
            base.append(100.0 + i % 3)
            head.append((100.0 + i % 3) * factor)
            blocks.append(block)
    found = paired_ratio(head, base, blocks)
    assert found.n == 3
    assert (found.low, found.high) == (pytest.approx(0.98), pytest.approx(1.03))
    assert found.confidence == 0.75


def test_one_pair_says_nothing_of_confidence() -> None:
    found = paired_ratio([2.0], [1.0])
    assert (found.ratio, found.low, found.high, found.n, found.confidence) == (2, 2, 2, 1, 0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_times_that_are_none_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="not positive and finite"):
        paired_ratio([bad, 1.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="not positive and finite"):
        unpaired_ratio([1.0], [bad])
    with pytest.raises(ValueError):
        paired_ratio([], [])


def test_a_thousand_pairs_with_spikes() -> None:
    noise = random.Random(5)
    base = [noise.lognormvariate(3, 0.02) * (10 if noise.random() < 0.05 else 1) for _ in range(1000)]
    head = [value * 1.05 * noise.lognormvariate(0, 0.01) for value in base]
    found = paired_ratio(head, base)
    assert found.low < 1.05 < found.high
    assert found.high - found.low < 0.003
