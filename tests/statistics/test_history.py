"""The latest value of a series against its best level."""

import pytest

from andrea_bench.statistics import change_from_best


@pytest.mark.parametrize(
    ("values", "change"),
    [
        ([10, 10, 20, 20, 15, 15], 0.5),  # half recovered: still 50 % above the best level
        ([10, 10, 10, 10], 0.0),  # no change is a number, not "unknown"
        ([10, 10, 20, 20, 10, 10], 0.0),
        ([10, 10, 5, 10, 10], 0.0),  # one lucky value sets no bar
        ([20, 20, 10, 10, 8], -0.2),
        ([10, 10], None),
        ([], None),
        ([0, 0, 1], None),
    ],
)
def test_change_from_the_best_level(values: list[float], change: float | None) -> None:
    found = change_from_best(values)
    assert found == (None if change is None else pytest.approx(change))
