"""Energy per call: true only over a window that the counter's steps can resolve (case NV07)."""

import itertools

import pytest

from andrea_bench.hardware.nvml import Nvml
from andrea_bench.measure import energy as module
from andrea_bench.measure.energy import energy_per_call, measure_energy

A = "aaaaaaaa-0000-0000-0000-000000000001"


def test_joules_watts_and_flops():
    found = energy_per_call(100.0, 700.0, window_s=2.0, calls=1200, flops=3 * 10**12)
    assert found.joules_per_call == pytest.approx(0.5)
    assert found.average_watts == pytest.approx(300.0)
    assert found.tflop_per_joule == pytest.approx(6.0)
    assert found.relative_error_bound == pytest.approx(0.1), "a step of 100 ms at each end of 2 s"


@pytest.mark.parametrize(
    ("start", "end", "window_s", "calls", "words"),
    [
        (100.0, 100.0, 0.002, 1, "window too short: 0.002 s, below 1 s"),
        (100.0, 400.0, 0.99, 500, "window too short"),
        (100.0, 40.0, 5.0, 10, "reset"),
        (100.0, 100.0, 5.0, 10, "did not move"),
        (None, 100.0, 5.0, 10, "no energy counter"),
        (100.0, None, 5.0, 10, "no energy counter"),
        (100.0, 200.0, 5.0, 0, "no call"),
    ],
)
def test_no_figure_where_it_could_not_be_true(start, end, window_s, calls, words):
    found = energy_per_call(start, end, window_s=window_s, calls=calls, flops=1)
    assert words in found.reason
    assert found.joules_per_call is found.average_watts is found.tflop_per_joule is None


class FakeTime:
    """A clock on which each look is half a second later."""

    def __init__(self):
        self.ticks = itertools.count()

    def perf_counter(self):
        return next(self.ticks) * 0.5


def test_a_window_of_its_own(stand_in, monkeypatch):
    stand_in(energy_step_mj=900_000)
    monkeypatch.setattr(module, "time", FakeTime())
    calls, waits = [], []
    found = measure_energy(
        Nvml().find(A), lambda: calls.append(1), lambda: waits.append(1), window_s=2.0, calls_per_batch=10
    )
    assert found.calls == len(calls) == 30
    assert found.window_s == 2.5
    assert found.joules_per_call == pytest.approx(900 / 30)
    assert found.average_watts == pytest.approx(360.0)
    assert len(waits) == 4


def test_a_slice_has_no_energy(stand_in, monkeypatch):
    stand_in(mig=1)
    monkeypatch.setattr(module, "time", FakeTime())
    found = measure_energy(Nvml().find("cccccccc-0000-0000-0000-000000000003"), int, int, window_s=2.0)
    assert found.joules_per_call is None
    assert found.reason == "energy counter: not split by MIG slice"
