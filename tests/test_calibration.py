"""Calibrations: what noise means for a gate, and when one is told to be too tight."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from andrea_bench.calibration import Calibration, Ceilings, CellNoise, SuiteNoise, read_calibration, too_tight
from andrea_bench.errors import BadInput

MACHINE = {"device": "cpu", "cpu": {"model": "Test CPU", "logical_cpus": 2}}
AS_NOW: dict[str, Any] = {"quantile": 0.05, "sampling": 2}


def cells(sd: float, count: int = 3) -> list[CellNoise]:
    generator = random.Random(5)
    return [
        CellNoise(cell_id=str(i), kernel="k", problem="p", median_us=100.0,
                  log_ratios=[generator.gauss(0, sd) for _ in range(40)])
        for i in range(count)
    ]  # fmt: skip


def test_noise_tells_what_a_gate_can_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="calibrating measures with torch")
    from andrea_bench import noise
    from andrea_bench.noise import summarise

    monkeypatch.setattr(noise, "REPLAYED_GATES", 30)
    found = summarise(cells(0.01), pairs=40, pair_seconds=6.0)
    assert found.gate_pairs == 20
    assert found.noise == pytest.approx(0.01, rel=0.3)
    assert found.smallest_allowance in (0.02, 0.03)
    assert max(found.false_alarm_rate.values()) <= 0.05
    # Two pairs can't decide anything, however quiet the machine.
    assert summarise(cells(0.001), pairs=40, pair_seconds=60.0).smallest_allowance is None


def test_few_pairs_promise_nothing() -> None:
    pytest.importorskip("torch", reason="calibrating measures with torch")
    from andrea_bench.noise import summarise

    found = summarise(cells(0.001), pairs=5, pair_seconds=6.0)
    assert found.smallest_allowance is None and found.false_alarm_rate == {}
    assert summarise(cells(0.001), pairs=6, pair_seconds=6.0).smallest_allowance is not None
    calibration = Calibration(
        measured_at="2026-11-29T12:00:00", device="cpu", environment=MACHINE, ceilings=Ceilings(threads=1),
        suites={"projection": found},
    )  # fmt: skip
    assert too_tight(calibration, MACHINE, {"projection"}, max_slowdown=0.01, **AS_NOW) == []


def test_a_gate_tighter_than_the_noise_is_told() -> None:
    noise = SuiteNoise(
        pairs=9,
        gate_pairs=20,
        pair_seconds=6,
        noise=0.012,
        false_alarm_rate={"1%": 0.0},
        smallest_allowance=0.02,
        cells=[],
        quantile=0.05,
        sampling=2,
    )
    calibration = Calibration(
        measured_at="2026-11-29T12:00:00", device="cpu", environment=MACHINE, ceilings=Ceilings(threads=1),
        suites={"projection": noise},
    )  # fmt: skip
    (line,) = too_tight(calibration, MACHINE, {"projection", "attention"}, max_slowdown=0.01, **AS_NOW)
    assert "1 % can't be met in suite projection" in line and "1.2 % between two processes" in line
    assert "2 % can be" in line
    assert too_tight(calibration, MACHINE, {"projection"}, max_slowdown=0.02, **AS_NOW) == []
    other = {"device": "cpu", "cpu": {"model": "Other CPU", "logical_cpus": 2}}
    assert too_tight(calibration, other, {"projection"}, max_slowdown=0.01, **AS_NOW) == []
    for older in ({"quantile": 0.5}, {"sampling": 1}):
        calibration.suites["projection"] = msgspec.structs.replace(noise, **older)
        (line,) = too_tight(calibration, MACHINE, {"projection"}, max_slowdown=0.01, **AS_NOW)
        assert "(2026-11-29) is of an older version" in line and "`andrea-bench calibrate projection` again" in line
    assert too_tight(calibration, MACHINE, {"projection"}, max_slowdown=0.02, **AS_NOW) == []
    assert too_tight(None, MACHINE, {"projection"}, max_slowdown=0.01, **AS_NOW) == []


def test_a_file_that_is_no_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert read_calibration() is None
    file = tmp_path / "andrea-bench" / "calibration.json"
    file.parent.mkdir()
    file.write_text("{}")
    with pytest.raises(BadInput, match="is no calibration"):
        read_calibration()
