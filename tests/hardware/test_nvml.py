"""NVML through the real pynvml and a stand-in library: units, identity, and every way to be absent."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from andrea_bench.hardware import nvml, nvml_codes
from andrea_bench.hardware.nvml import Absent, Nvml

A, B = "aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000002"
SLICE = "MIG-cccccccc-0000-0000-0000-000000000003"


def card(uuid=A):
    return Nvml().find(uuid)


def test_a_healthy_card_in_its_units(stand_in):
    stand_in()
    state = card().state()
    assert state == {
        "sm_clock_mhz": 2520, "memory_clock_mhz": 10501, "temperature_celsius": 60, "power_watts": 300.5,
        "energy_joules": 1000.0, "performance_state": "P2", "event_reasons": [], "power_average_watts": 299.0,
        "power_instant_watts": 310.0, "gpu_utilisation_percent": 97, "memory_utilisation_percent": 41,
        "memory_total_bytes": 24 * 2**30, "memory_used_bytes": 3 * 2**30,
    }  # fmt: skip
    assert card().pcie() == {"pcie_sent_gb_per_s": 1.0, "pcie_received_gb_per_s": 2.0}


def test_identity_and_versions(stand_in):
    stand_in()
    identity = card(B).identity()
    assert identity["uuid"] == f"GPU-{B}"
    assert identity["pci_bus_id"] == "00000000:81:00.0"
    assert identity["compute_capability"] == "8.9"
    assert identity["power_limit_watts"] == 450.0
    assert identity["max_sm_clock_mhz"] == 2520
    assert (identity["application_sm_clock_mhz"], identity["application_memory_clock_mhz"]) == (2235, 10501)
    assert identity["mig_enabled"] is False
    assert identity["display_active"] is True
    assert not [key for key in identity if key.endswith("_reason")]
    assert Nvml().versions() == {"driver_version": "580.65.06", "cuda_driver_version": "13.0"}


def test_cumulative_slowdown_is_in_seconds(stand_in):
    stand_in(slowdown="74=250000000,270=1500000000")
    gpu = card()
    first, second = gpu.totals(), gpu.totals()
    assert second["slowdown_power_cap_s"] - first["slowdown_power_cap_s"] == pytest.approx(0.25)
    assert second["slowdown_hardware_thermal_s"] - first["slowdown_hardware_thermal_s"] == pytest.approx(1.5)
    assert second["slowdown_power_brake_s"] == first["slowdown_power_brake_s"] == 5.0


def test_event_reasons_in_words(stand_in):
    stand_in(reasons=hex(0x4 | 0x40 | 0x200))
    assert card().state()["event_reasons"] == [
        "software power cap", "hardware thermal slowdown", "board limit"]  # fmt: skip
    assert nvml_codes.event_reasons(0x1000 | 0x1) == ["idle", "unknown reason 0x1000"]


# ---- which card (C21) -----------------------------------------------------------------------------------
@pytest.mark.parametrize("asked", [B, f"GPU-{B}", f"gpu-{B}".upper(), f" GPU-{B} "])
@pytest.mark.parametrize("visible", ["1", "1,0", f"GPU-{B}", None])
def test_the_card_of_that_uuid_whatever_cuda_counts(stand_in, monkeypatch, asked, visible):
    stand_in()
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert Nvml().find(asked).uuid == f"GPU-{B}"


@pytest.mark.parametrize("asked", ["0000:81:00.0", "00000000:81:00.0", "81:00.0", "0000:81:00"])
def test_the_card_at_that_pci_id(stand_in, asked):
    stand_in()
    assert Nvml().find(pci_bus_id=asked).uuid == f"GPU-{B}"


def test_a_domain_is_part_of_a_pci_id():
    assert not nvml_codes.same_pci("00000001:81:00.0", "0000:81:00.0")
    assert not nvml_codes.same_pci("nonsense", "nonsense")


@pytest.mark.parametrize(
    ("uuid", "pci", "words"),
    [
        ("GPU-dddddddd-0000-0000-0000-000000000004", None, "no GPU with UUID GPU-dddddddd"),
        (None, "0000:41:00.0", "no GPU with PCI id 0000:41:00.0"),
        (None, "garbage", "no GPU with PCI id garbage"),
        (None, None, "neither UUID nor PCI id"),
        ("dddddddd-0000-0000-0000-000000000004", "0000:01:00.0", "has UUID GPU-aaaaaaaa"),
    ],
)
def test_never_another_card_than_the_one_asked_for(stand_in, uuid, pci, words):
    stand_in()
    with pytest.raises(Absent, match=re.escape(words)):
        Nvml().find(uuid, pci)


def test_a_lost_card_does_not_hide_the_others(stand_in):
    stand_in(fail="card0=15")
    connection = Nvml()
    assert [gpu.uuid for gpu in connection.cards()] == [f"GPU-{B}"]
    assert connection.refused == ["GPU 0: GPU is lost"]
    with pytest.raises(Absent, match="GPU 0: GPU is lost"):
        connection.find(A)


# ---- MIG (C19, NV01) ------------------------------------------------------------------------------------
def test_a_mig_slice(stand_in):
    stand_in(mig=1)
    gpu = Nvml().find(SLICE)
    assert gpu.name == "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
    state = gpu.state()
    assert state["gpu_utilisation_percent"] is None
    assert state["gpu_utilisation_percent_reason"] == "not supported (MIG)"
    assert state["memory_total_bytes"] == 10 * 2**30, "the slice's memory, not the card's"
    assert state["sm_clock_mhz"] == 2520, "clocks are the whole card's"
    for name in ("power_watts", "energy_joules", "power_instant_watts"):
        assert state[name] is None
        assert state[f"{name}_reason"] == "not split by MIG slice"
    assert gpu.totals()["slowdown_power_cap_s"] == 5.0
    assert gpu.pcie()["pcie_sent_gb_per_s"] is None
    assert gpu.identity()["mig_slice"] is True


def test_a_mig_slice_without_its_prefix_and_a_card_with_mig(stand_in):
    stand_in(mig=1)
    assert Nvml().find(SLICE.removeprefix("MIG-")).uuid == SLICE
    whole = Nvml().find(A).state()
    assert whole["gpu_utilisation_percent_reason"] == "not supported (MIG)"
    with pytest.raises(Absent, match="split by MIG"):
        Nvml().find(pci_bus_id="0000:01:00.0")
    assert Nvml().find(pci_bus_id="0000:81:00.0").uuid == f"GPU-{B}", "the second card isn't split"


def test_each_counter_is_asked_for_by_itself(stand_in):
    stand_in(fail="nvmlDeviceGetUtilizationRates=3,nvmlDeviceGetMemoryInfo=4,nvmlDeviceGetMemoryInfo_v2=4")
    state = card().state()
    assert state["gpu_utilisation_percent_reason"] == "not supported"
    assert (state["memory_used_bytes"], state["memory_used_bytes_reason"]) == (None, "no permission")
    assert state["sm_clock_mhz"] == 2520


CALLS = {
    "nvmlDeviceGetClockInfo": ("sm_clock_mhz", "memory_clock_mhz"),
    "nvmlDeviceGetTemperatureV": ("temperature_celsius",),
    "nvmlDeviceGetPowerUsage": ("power_watts",),
    "nvmlDeviceGetTotalEnergyConsumption": ("energy_joules",),
    "nvmlDeviceGetPerformanceState": ("performance_state",),
    "nvmlDeviceGetCurrentClocksEventReasons": ("event_reasons",),
    "nvmlDeviceGetFieldValues": ("power_average_watts", "power_instant_watts"),
    "nvmlDeviceGetUtilizationRates": ("gpu_utilisation_percent", "memory_utilisation_percent"),
}


@pytest.mark.parametrize("code", [2, 3, 4, 15, 19, 25, 30, 999, 12345])
@pytest.mark.parametrize("call", CALLS)
def test_a_failing_call_is_null_with_its_reason_and_the_rest_stays(stand_in, call, code):
    stand_in(fail=f"{call}={code}")
    state = card().state()
    for name, value in state.items():
        if name in CALLS[call]:
            assert value is None
            assert state[f"{name}_reason"] == nvml_codes.words(code)
        elif not name.endswith("_reason"):
            assert value is not None, name


def test_a_field_that_fails_by_itself_is_not_zero(stand_in):
    stand_in(field_fail="186=3,269=4")
    gpu = card()
    assert gpu.state()["power_instant_watts"] is None
    assert gpu.state()["power_instant_watts_reason"] == "not supported"
    assert gpu.state()["power_average_watts"] == 299.0
    totals = gpu.totals()
    assert (totals["slowdown_software_thermal_s"], totals["slowdown_software_thermal_s_reason"]) == (
        None, "no permission")  # fmt: skip
    assert totals["slowdown_power_cap_s"] == 5.0


NO_MEMORY_CALLS = "nvmlDeviceGetMemoryInfo=3,nvmlDeviceGetMemoryInfo_v2=3"


@pytest.mark.parametrize("settings", [{"memory_total": 0}, {"fail": NO_MEMORY_CALLS}])
def test_unified_memory_is_unknown_not_zero(stand_in, settings):
    stand_in(**settings)
    state = card().state()
    assert state["memory_total_bytes"] is None
    assert state["memory_used_bytes"] is None
    assert state["memory_total_bytes_reason"] in ("the driver says 0", "not supported")
    assert state["temperature_celsius"] == 60


def test_zero_clocks_are_unknown(stand_in):
    stand_in(sm_clocks="0")
    state = card().state()
    assert (state["sm_clock_mhz"], state["sm_clock_mhz_reason"]) == (None, "the driver says 0")


# ---- NVML can't start, or little of it works (C20, NV04) ------------------------------------------------
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (9, "the NVIDIA driver is not loaded: load it"),
        (18, "driver and driver library differ in version: reboot"),
        (4, "no permission"),
        (999, "unknown error in the driver"),
        (22, "virtual GPU"),
    ],
)
def test_nvml_that_cannot_start_says_why_in_one_line(stand_in, code, words):
    stand_in(fail=f"nvmlInit_v2={code}")
    with pytest.raises(Absent, match=words) as caught:
        Nvml()
    assert "\n" not in str(caught.value)


def test_all_queries_unsupported(stand_in):
    stand_in(fail="*=3")
    gpu, *_ = Nvml().cards()
    read = gpu.state() | gpu.totals() | gpu.identity() | gpu.pcie()
    values = {name: value for name, value in read.items() if not name.endswith("_reason")}
    assert values.pop("mig_slice") is False
    assert set(values.values()) == {None}
    assert all(read[f"{name}_reason"] for name in values)
    with pytest.raises(Absent, match="not supported"):
        gpu.processes()


def test_no_card(stand_in):
    stand_in(cards=0)
    assert Nvml().cards() == []
    with pytest.raises(Absent, match="no GPU"):
        Nvml().find(A)


def test_a_call_after_shutdown(stand_in):
    stand_in()
    connection = Nvml()
    gpu = connection.find(A)
    connection.close()
    assert gpu.state()["sm_clock_mhz_reason"] == "NVML is shut down"
    connection.close()
    assert connection.refused == ["shutdown: NVML is shut down"]


def test_a_card_lost_in_the_middle(stand_in):
    stand_in()
    gpu = card()
    assert gpu.state()["sm_clock_mhz"] == 2520
    assert not gpu.lost
    os.environ["STAND_IN_LOST_AFTER"] = "0"
    state = gpu.state()
    assert state["sm_clock_mhz_reason"] == state["power_instant_watts_reason"] == "GPU is lost"
    assert gpu.lost
    del os.environ["STAND_IN_LOST_AFTER"]


def test_an_old_driver(stand_in):
    stand_in(driver="old", reasons="0x4", pids="4194300")
    gpu = card()
    state = gpu.state()
    assert state["temperature_celsius"] == 60
    assert state["event_reasons"] == ["software power cap"]
    assert state["memory_used_bytes"] == 6 * 2**30
    assert state["power_average_watts_reason"] == "not supported"
    assert gpu.totals()["slowdown_hardware_thermal_s_reason"] == "not supported"
    assert [process["pid"] for process in gpu.processes()] == [4194300]


def test_processes_with_and_without_memory(stand_in):
    stand_in(pids="11,12")
    assert card().processes() == [
        {"pid": 11, "used_memory_bytes": 2**30},
        {"pid": 12, "used_memory_bytes": None},
    ]


def test_no_driver_library(tmp_path):
    """pynvml finds a file that is no library: what it says is the same as where there is none."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    code = "from andrea_bench.hardware.nvml import *\ntry: Nvml()\nexcept Absent as e: print(e)"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert said.stdout.startswith("no NVIDIA driver library (libnvidia-ml.so.1): install")


@pytest.mark.parametrize(
    ("source", "words"),
    [(None, "the package nvidia-ml-py is not installed"), ("def nvmlInit(): pass", "is not NVIDIA's")],
)
def test_no_bindings_or_another_package_of_that_name(tmp_path, monkeypatch, source, words):
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    if source is None:
        monkeypatch.setitem(sys.modules, "pynvml", None)
    else:
        (tmp_path / "pynvml.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Absent, match=words):
        Nvml()


def test_it_only_ever_asks():
    """No call that could change a card: every NVML name in the package is a Get, an Init or a Shutdown."""
    package = Path(nvml.__file__).parents[1]
    names = {n for file in package.rglob("*.py") for n in re.findall(r"nvml[A-Z]\w+", file.read_text())}
    no_calls = {"nvmlClocksEventReason", "nvmlValueType_t", "nvmlReturn", "nvmlGetFunctionPointer"}
    calls = r"nvml((Device|System)Get\w+|Init|Shutdown)"
    assert {n for n in names - no_calls if not re.fullmatch(calls, n)} == set()
    importers = [file.name for file in package.rglob("*.py") if "import pynvml" in file.read_text()]
    assert importers == ["nvml.py"]
