"""A time that would be faster than the device can be is invalid, whatever its interval."""

import pytest
from test_group import SMALL, make_task, stub

from andrea_bench.measure.clock import FakeClock
from andrea_bench.measure.group import measure_group
from andrea_bench.measure.plausibility import implausible, peak_tflops


def test_a_matmul_at_forty_times_the_peak_is_implausible() -> None:
    limit = peak_tflops("NVIDIA H100 80GB HBM3", "bfloat16", 1)
    assert limit is not None
    assert 989 < limit < 1300
    flops = 2 * 8192**3
    honest_us = flops / 700e6
    assert implausible(flops, honest_us, limit) is None
    assert "above the" in (implausible(flops, honest_us / 40, limit) or "")


def test_what_is_not_known_is_not_judged() -> None:
    assert peak_tflops("Some Other Board", "bfloat16", 1) is None
    assert implausible(10**30, 1.0, None) is None


@pytest.mark.parametrize(("us", "verdict"), [(100.0, "valid"), (1e-6, "invalid")])
def test_the_record_says_so(us: float, verdict: str) -> None:
    clock = FakeClock()
    clock.sample = lambda call: (us, None)  # type: ignore[method-assign]
    (record,) = measure_group(make_task(stub("good"), problem=SMALL), clock)
    assert record.status == "ok"
    assert record.validity.verdict == verdict
