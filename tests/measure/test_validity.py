"""The rules by which counters make a Record suspect or invalid, at and around each threshold."""

import pytest

from andrea_bench.measure.validity import judge, throttle_reason

CPU = {"cpu_window_s": 4.0, "cpu_cpus": 2, "cpu_steal_share": 0.0, "cpu_foreign_cpus": 0.0}
GPU = {"interval_s": 4.0, "gpu_sm_clock_mhz": 2000, "gpu_max_sm_clock_mhz": 2000, "gpu_event_reasons": []}


def verdict(device, changed, converged=True, drift=0.0):
    base = CPU if device == "cpu" else GPU
    return judge(device, {**base, **changed}, converged, drift).verdict


@pytest.mark.parametrize(
    ("changed", "expected", "is_throttled"),
    [
        ({}, "valid", False),
        ({"cpu_steal_share": 0.02}, "valid", False),
        ({"cpu_steal_share": 0.03}, "suspect", False),
        ({"cpu_steal_share": 0.11}, "invalid", True),
        ({"cpu_foreign_cpus": 0.1}, "valid", False),
        ({"cpu_foreign_cpus": 0.2}, "suspect", False),
        ({"cpu_foreign_cpus": 1.9, "cpu_cpus": 128}, "suspect", False),  # two busy processes on any machine
        ({"cpu_foreign_cpus": 0.3, "cpu_cpus": 128}, "valid", False),
        ({"cpu_clock_mhz": 3000, "cpu_max_clock_mhz": 4000}, "valid", False),
        ({"cpu_clock_mhz": 2900, "cpu_max_clock_mhz": 4000}, "suspect", False),
        ({"cpu_clock_mhz": 2900, "cpu_max_clock_mhz": None}, "valid", False),
        ({"cpu_throttle_events": 1}, "suspect", False),
        ({"cpu_quota_throttled_s": 0.1}, "suspect", False),
        ({"cpu_quota_throttled_s": 1.0}, "invalid", True),
        ({"cpu_temperature_start_celsius": 50, "cpu_temperature_celsius": 61}, "suspect", False),
        ({"cpu_temperature_start_celsius": 50, "cpu_temperature_celsius": 60}, "valid", False),
        ({"cpu_temperature_start_celsius": None, "cpu_temperature_celsius": 90}, "valid", False),
        ({"cpu_steal_share": None, "cpu_foreign_cpus": None}, "suspect", False),
    ],
)
def test_cpu_rules(changed, expected, is_throttled):
    assert verdict("cpu", changed) == expected
    assert (throttle_reason("cpu", {**CPU, **changed}) is not None) == is_throttled


@pytest.mark.parametrize("cpus", [1, 2, 8])
def test_one_tick_in_a_short_window_proves_nothing(cpus):
    short = {"cpu_window_s": 0.1, "cpu_cpus": cpus, "cpu_steal_share": 0.01 / 0.1 / cpus, "cpu_foreign_cpus": 0.1}
    assert verdict("cpu", short) == "valid"


@pytest.mark.parametrize(
    ("changed", "expected", "is_throttled"),
    [
        ({}, "valid", False),
        ({"gpu_sm_clock_mhz": 1500}, "valid", False),
        ({"gpu_sm_clock_mhz": 1499}, "invalid", True),
        ({"gpu_sm_clock_mhz": None}, "suspect", False),
        ({"gpu_sm_clock_mhz": None, "gpu_slowdown_power_cap_s": 0.0}, "valid", False),
        ({"gpu_max_sm_clock_mhz": None, "gpu_sm_clock_mhz": 100}, "valid", False),
        ({"gpu_slowdown_power_cap_s": 4.0}, "suspect", False),
        ({"gpu_slowdown_sync_boost_s": 0.001}, "suspect", False),
        ({"gpu_slowdown_software_thermal_s": 0.001}, "suspect", False),
        ({"gpu_slowdown_software_thermal_s": 0.5}, "invalid", True),
        ({"gpu_slowdown_hardware_thermal_s": 0.5}, "invalid", True),
        ({"gpu_slowdown_power_brake_s": 0.5}, "invalid", True),
        ({"gpu_slowdown_power_brake_s": None}, "valid", False),
        ({"gpu_foreign_processes": [{"pid": 7, "used_memory_bytes": None}]}, "suspect", False),
        ({"gpu_foreign_processes": None}, "valid", False),
        ({"gpu_lost": True}, "invalid", False),
        ({"gpu_counters_reason": "no driver"}, "suspect", False),
        ({"cpu_steal_share": 0.5, "cpu_foreign_cpus": 9.0}, "valid", False),
    ],
)
def test_gpu_rules(changed, expected, is_throttled):
    assert verdict("cuda:1", changed) == expected
    assert (throttle_reason("cuda:1", {**GPU, **changed}) is not None) == is_throttled


def test_every_reason_is_named():
    found = judge("cuda", {**GPU, "gpu_lost": True, "gpu_slowdown_power_cap_s": 1.0}, False, -0.08)
    assert found.verdict == "invalid"
    assert found.reasons == [
        "the GPU was lost",
        "software power cap for 1 of 4 s",
        "the interval of the median did not reach its target",
        "timings drifted by -8.0% within the group",
    ]


@pytest.mark.parametrize(("converged", "drift", "expected"), [
    (True, None, "valid"), (True, 0.05, "valid"), (True, 0.051, "suspect"), (True, -0.06, "suspect"),
    (False, None, "suspect")])  # fmt: skip
def test_timings_themselves(converged, drift, expected):
    assert verdict("cpu", {}, converged, drift) == expected
