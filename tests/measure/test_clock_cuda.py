"""The event clock on a simulated GPU: one queue, a host that needs time to fill it."""

from types import SimpleNamespace

import pytest

from andrea_bench.measure import clock
from andrea_bench.measure.clock import CYCLES_PER_US, LEAST_HEAD_START_US, MOST_HEAD_START_US, CudaEventClock


class Simulated:
    """torch.cuda on a timeline in microseconds. A kernel starts when it is queued and the one before it has ended."""

    def __init__(self) -> None:
        self.host_us = 0.0
        self.device_us = 0.0
        self.sleeps_us: list[float] = []

    def launch(self, *, host_us: float, device_us: float) -> None:
        self.host_us += host_us
        self.device_us = max(self.device_us, self.host_us) + device_us

    def synchronize(self, device: object = None) -> None:
        self.host_us = max(self.host_us, self.device_us)

    def _sleep(self, cycles: int) -> None:
        self.sleeps_us.append(cycles / CYCLES_PER_US)
        self.launch(host_us=1.0, device_us=cycles / CYCLES_PER_US)

    def Event(self, enable_timing: bool) -> SimpleNamespace:
        event = SimpleNamespace(at=0.0)

        def record() -> None:
            self.launch(host_us=1.0, device_us=0.0)
            event.at = self.device_us

        event.record = record
        event.elapsed_time = lambda other: (other.at - event.at) / 1e3  # milliseconds
        return event


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Simulated:
    gpu = Simulated()
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter_ns=lambda: round(gpu.host_us * 1e3)))
    return gpu


def made(gpu: Simulated) -> CudaEventClock:
    found = CudaEventClock("cpu")
    found._torch = SimpleNamespace(cuda=gpu)
    return found


def test_a_short_launch_is_timed_behind_the_shortest_sleep(simulated: Simulated) -> None:
    device_us, host_us = made(simulated).sample(lambda: simulated.launch(host_us=13.0, device_us=10.0))
    assert device_us == pytest.approx(10.0)
    assert host_us == pytest.approx(13.0)
    assert simulated.sleeps_us == [LEAST_HEAD_START_US]


def test_many_launches_take_what_the_device_needs_not_what_the_host_does(simulated: Simulated) -> None:
    def per_head_loop() -> None:
        for _ in range(36):
            simulated.launch(host_us=11.0, device_us=3.0)

    timed = made(simulated)
    assert [timed.sample(per_head_loop)[0] for _ in range(3)] == pytest.approx([36 * 3.0] * 3)
    # Found once, then kept: one sample thrown away, not three.
    assert len(simulated.sleeps_us) == 4
    # With the shortest sleep alone the interval would have held the host's work.
    assert timed._sample(per_head_loop, LEAST_HEAD_START_US)[0] > 1.5 * 36 * 3.0


def test_one_slow_launch_does_not_lengthen_every_later_sleep(simulated: Simulated) -> None:
    host_us = iter([5000.0, 13.0, 13.0, 13.0])

    def call() -> None:
        simulated.launch(host_us=next(host_us), device_us=10.0)

    timed = made(simulated)
    assert [timed.sample(call)[0] for _ in range(3)] == pytest.approx([10.0] * 3)
    assert simulated.sleeps_us[0] == simulated.sleeps_us[-1] == LEAST_HEAD_START_US
    assert simulated.sleeps_us[1] > 5000.0


def test_a_call_that_waits_for_the_device_is_taken_as_it_is(simulated: Simulated) -> None:
    def waits() -> None:
        simulated.launch(host_us=5.0, device_us=7.0)
        simulated.synchronize()

    timed = made(simulated)
    timed.sample(waits)
    assert simulated.sleeps_us[-1] == MOST_HEAD_START_US
    assert len(simulated.sleeps_us) < 10
