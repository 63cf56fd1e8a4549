"""Figures as people read them."""

import pytest

from andrea_bench.report.words import duration, interval, percent, rate, significant
from andrea_bench.statistics import Ratio


@pytest.mark.parametrize(
    ("us", "text"),
    [(None, "-"), (0.1234, "0.123 us"), (17.0, "17.0 us"), (999.4, "999 us"), (1540.0, "1.54 ms"), (2.5e6, "2.50 s"),
     (1.0e9, "1000 s")],
)  # fmt: skip
def test_duration(us: float | None, text: str) -> None:
    assert duration(us) == text


def test_rates_change_unit_below_a_tenth_of_a_tflop() -> None:
    assert rate(0.0661) == "66.1 GFLOP/s"
    assert rate(1.234) == "1.23 TFLOP/s"
    assert rate(None) == "-"


def test_ratio_and_share() -> None:
    assert interval(Ratio(ratio=0.617, low=0.6, high=0.642, n=9, confidence=0.95)) == "0.62 (0.60 to 0.64)"
    assert percent(0.0314) == "3.1 %"
    assert significant(0) == "0"
    assert significant(123456.0) == "123000"
