"""A Group's counters in one line: recorded ones, and made-up GPUs."""

import json
from pathlib import Path

import pytest

from andrea_bench.report.counters import counters_line

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("quiet", "CPU: others 0.00 of 2 CPUs, steal 0.0 %"),
        ("loaded", "CPU: others 1.25 of 2 CPUs, steal 0.0 %"),
    ],
)
def test_recorded(name, line):
    recorded = json.loads((FIXTURES / f"counters_cpu_{name}.json").read_text())
    assert counters_line(recorded["counters"]) == line


@pytest.mark.parametrize(
    ("counters", "line"),
    [
        ({}, None),
        ({"gpu_counters": None, "gpu_counters_reason": "no driver"}, "GPU: not watched: no driver"),
        ({"gpu_samples": 3, "gpu_sm_clock_mhz": None, "gpu_sm_clock_mhz_reason": "GPU is lost"}, "GPU: GPU is lost"),
        (
            {
                "gpu_samples": 9, "gpu_sm_clock_mhz": 2520, "gpu_sm_clock_min_mhz": 1260,
                "gpu_max_sm_clock_mhz": 2520, "gpu_power_watts": 299.6, "gpu_power_limit_watts": 450.0,
                "gpu_temperature_celsius": 60, "gpu_utilisation_percent": None,
                "gpu_event_reasons": ["idle", "sync boost"],
            },
            "GPU: SM clock 2520 of 2520 MHz (lowest 1260), 300 of 450 W, 60 C, slowed by sync boost",
        ),
        (
            {"cpu_foreign_cpus": None, "cpu_steal_share": None, "cpu_steal_share_reason": "no /proc"},
            "CPU: no /proc",
        ),
        (
            {
                "cpu_foreign_cpus": 0.2, "cpu_cpus": 8, "cpu_clock_mhz": 3400.0, "cpu_max_clock_mhz": None,
                "cpu_throttle_events": 0, "cpu_quota_throttled_s": 0.25,
            },
            "CPU: others 0.20 of 8 CPUs, clock 3400 MHz, quota held back 0.25 s",
        ),
    ],
)  # fmt: skip
def test_lines(counters, line):
    assert counters_line(counters) == line
