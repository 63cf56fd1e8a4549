"""A throttled Group is measured again, a bounded number of times, and keeps its samples in the end."""

import msgspec
import pytest
from test_group import make_task, stub

from andrea_bench.measure import group
from andrea_bench.measure.clock import FakeClock
from andrea_bench.measure.counters import Observation


class Clocks:
    """A watched GPU whose median SM clock is read from a series, one reading a try."""

    gpu = None

    def __init__(self, series: list[float]) -> None:
        self.series = series
        self.tries = 0

    def before(self) -> None:
        self.tries += 1

    def after(self) -> Observation:
        clock = self.series[min(self.tries, len(self.series)) - 1]
        counters = {"interval_s": 1.0, "gpu_sm_clock_mhz": clock, "gpu_max_sm_clock_mhz": 1410.0}
        return Observation(device="cuda", counters=counters)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "THROTTLE_PAUSE_S", 0.0)


def test_forever_throttled_ends_after_three_more_tries_with_its_samples() -> None:
    clocks = Clocks([800.0])
    (record,) = group.measure_group(make_task(stub("good")), FakeClock(), watch=clocks)  # type: ignore[arg-type]
    assert clocks.tries == 4
    assert record.status == "throttled"
    # 800 of 1410 MHz.
    assert "57" in (record.reason or "")
    assert len(record.samples_us) == len(record.order) == len(record.round) == len(record.block) >= 6
    assert record.validity.verdict == "invalid"


def test_one_that_recovers_is_ok() -> None:
    clocks = Clocks([800.0, 800.0, 1400.0])
    (record,) = group.measure_group(make_task(stub("good")), FakeClock(), watch=clocks)  # type: ignore[arg-type]
    assert clocks.tries == 3
    assert record.status == "ok"
    assert record.round == list(range(len(record.samples_us)))


def test_what_is_only_checked_is_not_waited_for() -> None:
    clocks = Clocks([800.0])
    task = make_task(stub("good"), min_samples=1, max_samples=1)
    group.measure_group(task, FakeClock(), watch=clocks)  # type: ignore[arg-type]
    assert clocks.tries == 1


def test_one_of_many_turns_is_not_repeated_nor_its_kernels_checked_again() -> None:
    clocks = Clocks([800.0])
    task = msgspec.structs.replace(make_task(stub("good"), stub("wrong_mask")), checked=True)
    records = group.measure_group(task, FakeClock(), watch=clocks)  # type: ignore[arg-type]
    assert clocks.tries == 1
    assert [record.status for record in records] == ["throttled", "throttled"]
    assert all(record.samples_us and record.relative_error is None for record in records)
