"""Energy per call goes into a Group's records only where a GPU is watched and a window was asked for."""

import msgspec
from test_group import make_task, stub

from andrea_bench.measure import group
from andrea_bench.measure.clock import FakeClock
from andrea_bench.measure.counters import Observation


class Card:
    """A card whose energy counter runs at 200 W of a clock that a test can hold."""

    lost = False

    def state(self) -> dict[str, object]:
        import time

        return {"energy_joules": 200.0 * time.perf_counter()}


class WatchedCard:
    gpu = Card()

    def before(self) -> None:
        """Nothing to do."""

    def after(self) -> Observation:
        return Observation(device="cpu", counters={"interval_s": 1.0})


def test_energy_is_power_times_time_over_calls(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(group.torch.cuda, "synchronize", lambda device: None)
    task = make_task(stub("good"), energy_window_s=1.05)
    (record,) = group.measure_group(task, FakeClock(), watch=WatchedCard())  # type: ignore[arg-type]
    energy = record.counters["gpu_energy_per_call"]
    assert energy["reason"] is None
    assert abs(energy["average_watts"] - 200) < 2
    assert abs(energy["joules_per_call"] * energy["calls"] - 200 * energy["window_s"]) < 2
    # Two steps of 100 ms in a window of 1.05 s.
    assert abs(energy["relative_error_bound"] - 0.2 / energy["window_s"]) < 1e-9


def test_none_where_none_was_asked_for() -> None:
    (record,) = group.measure_group(make_task(stub("good")), FakeClock(), watch=WatchedCard())  # type: ignore[arg-type]
    assert "gpu_energy_per_call" not in record.counters
    assert msgspec.json.encode(record)
