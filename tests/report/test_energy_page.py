"""The page of energy and clocks."""

from pathlib import Path
from typing import Any

import pytest
from made_up import RUN, changed_run, on_h200
from page_parts import charts, marks, page

from andrea_bench.report.content import Table
from andrea_bench.store import read_run


@pytest.fixture
def h200(tmp_path: Path) -> Path:
    """The first Group ran cooler and at a steady clock."""

    def change(record: dict[str, Any]) -> None:
        on_h200(record)
        if record["suite"] != "projection" and record["samples_us"]:
            record["counters"] |= {"gpu_sm_clock_min_mhz": 1980, "gpu_temperature_celsius": 62}

    return changed_run(tmp_path / "h200", change, {"device": "cuda", "gpu": {"name": "NVIDIA H200"}})


def test_clocks_power_and_temperature_are_drawn_over_time(h200: Path) -> None:
    drawn = {chart.name: chart for chart in charts(page("energy", h200))}
    clock, heat = drawn["energy-1-clock"], drawn["energy-1-temperature"]
    records = [r for r in read_run(h200).records if r.samples_us]
    points = marks(clock, "point")
    assert {(p["value"], p["low"], p["high"]) for p in points} == {(1980, 1755, 1980), (1980, 1980, 1980)}
    assert (
        any("SM clock 1980 MHz (lowest 1755)" in p["about"] for p in points)
        and "At most, says the machine: SM clock 1980" in clock.about
    )
    assert {p["value"] for p in marks(heat, "point")} == {61, 62}
    # What never changed is said, not drawn.
    said = [part for part in page("energy", h200).parts if isinstance(part, str)]
    assert "Power: GPU power 612.5 W throughout. At most, says the machine: GPU power 700 W." in said
    assert "Memory clock: memory clock 3201 MHz throughout." in said
    # A point a Group, in the seconds since the Run began.
    groups = {(r.suite, r.problem.label()) for r in records}
    assert len(points) == len(groups) == len(clock.data.rows)
    assert {float(row[0]) for row in clock.data.rows} == {0.0}


@pytest.mark.parametrize("started_at", ["", "2026-01-02T03:04:05"])
def test_a_time_that_is_none_is_left_out(tmp_path: Path, started_at: str) -> None:
    def timeless(record: dict[str, Any]) -> None:
        on_h200(record)
        record["started_at"] = started_at  # without a zone it can't be set beside the Run's

    run = changed_run(tmp_path / "run", timeless, {"device": "cuda", "gpu": {"name": "NVIDIA H200"}})
    assert not [chart for chart in charts(page("energy", run)) if chart.name.endswith("-clock")]


def test_time_counts_from_the_start_of_the_run(tmp_path: Path) -> None:
    def later(record: dict[str, Any]) -> None:
        on_h200(record)
        record["started_at"] = "2026-01-31T12:01:30.500+00:00"
        record["counters"]["gpu_power_watts"] = 300.0 + record["problem"]["seq_len"]

    run = changed_run(tmp_path / "run", later, started_at="2026-01-31T12:00:00.000+00:00")
    assert {p["x"] for p in marks(charts(page("energy", run))[0], "point")} == {90.5}


def test_energy_of_a_call_has_its_bound_power_and_useful_work(h200: Path) -> None:
    one = page("energy", h200)
    chart = next(c for c in charts(one) if c.name == "energy-per-call-1-1")
    bar = marks(chart, "bar")[0]
    assert (bar["value"], bar["low"], bar["high"]) == (250.0, 240.0, 260.0)
    row = chart.data.rows[0]
    assert row[1:6] == ("250 mJ", "4.0 %", "640 W", "0.820 TFLOP/J", "12800")
    assert "no confidence interval" in chart.about
    # What has no figure says why.
    told = next(part for part in one.parts if isinstance(part, Table) and "could not be told" in part.caption)
    assert ("eager: no call ended within the window",) in told.rows


def test_where_nothing_was_counted_the_page_is_left_out_with_the_reason(tmp_path: Path) -> None:
    assert "no clock, power, temperature or energy was counted" in str(page("energy", RUN).absent)

    def cpu(record: dict[str, Any]) -> None:
        record["counters"] = {"interval_s": 2.0, "cpu_clock_mhz": None, "cpu_clock_mhz_reason": "no cpufreq here"}

    assert str(page("energy", changed_run(tmp_path / "run", cpu)).absent).endswith(": no cpufreq here")


def test_a_cpu_with_sensors_has_the_page_too(tmp_path: Path) -> None:
    def cpu(record: dict[str, Any]) -> None:
        length = record["problem"]["seq_len"]
        record["counters"] = {"interval_s": 2.0, "cpu_clock_mhz": 3400.0 + length, "cpu_max_clock_mhz": 4000.0,
                              "cpu_package_joules": 50.0 + length, "cpu_temperature_celsius": None}  # fmt: skip

    one = page("energy", changed_run(tmp_path / "run", cpu))
    assert [c.name for c in charts(one)] == ["energy-1-clock", "energy-1-energy-of-all-cpu-packages"]
    assert "CPU clock 4000 MHz" in charts(one)[0].about
