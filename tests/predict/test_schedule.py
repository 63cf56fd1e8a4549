"""Blocks handed to SMs: the busiest SM decides."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_bench.predict.schedule import makespan


def _by_hand(durations: list[float], copies: int, slots: int) -> float:
    free = [0.0] * slots
    for duration in durations * copies:
        first = free.index(min(free))
        free[first] += duration
    return max(free)


def test_equal_blocks_run_in_waves() -> None:
    assert makespan([2.0], 132, 132) == 2.0
    assert makespan([2.0], 133, 132) == 4.0
    assert makespan([2.0] * 3, 100, 132) == ceil(300 / 132) * 2.0


def test_order_matters_at_the_tail() -> None:
    ascending = [float(i) for i in range(1, 9)]
    assert makespan(ascending[::-1], 1, 3) < makespan(ascending, 1, 3)


@given(
    durations=st.lists(st.integers(1, 50).map(float), min_size=1, max_size=20),
    copies=st.integers(1, 20),
    slots=st.integers(1, 40),
)
def test_equals_handing_them_out_one_by_one(durations: list[float], copies: int, slots: int) -> None:
    assert makespan(durations, copies, slots) == pytest.approx(_by_hand(durations, copies, slots))


def test_many_blocks_are_as_good_as_even() -> None:
    durations = [float(i) for i in range(64, 0, -1)]
    found = makespan(durations, 10**9, 132)
    assert found == pytest.approx(sum(durations) * 10**9 / 132, rel=1e-6)
