"""Watch on a CPU and on stand-in GPUs, and what becomes of its counters: validity, throttling, no crash."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from andrea_bench.hardware import cpu
from andrea_bench.hardware.nvml import Nvml
from andrea_bench.measure import counters as module
from andrea_bench.measure.counters import Observation, Watch, foreign_processes, throttled
from andrea_bench.measure.sampler import Sampler

FIXTURES = Path(__file__).parents[1] / "fixtures"
A, B = "GPU-aaaaaaaa-0000-0000-0000-000000000001", "GPU-bbbbbbbb-0000-0000-0000-000000000002"


def watch_gpu(uuid=A, samples=3, **arguments):
    """One observation of a GPU over an interval in which the sampler took at least `samples` readings."""
    watch = Watch("cuda:0", gpu_uuid=uuid, **arguments)
    watch.before()
    while watch._gpu and len(watch._gpu.sampler._readings) < samples and watch._gpu.sampler._thread.is_alive():
        time.sleep(0.005)
    return watch.after()


@pytest.fixture(autouse=True)
def fast_sampler(monkeypatch):
    monkeypatch.setattr(module, "Sampler", lambda read: Sampler(read, period_s=0.01))


# ---- CPU ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "verdict"), [("quiet", "valid"), ("loaded", "suspect")])
def test_recorded_runs_quiet_and_under_load(name, verdict):
    recorded = json.loads((FIXTURES / f"counters_cpu_{name}.json").read_text())
    before, after = (msgspec.convert(recorded[end], cpu.Snapshot) for end in ("before", "after"))
    read = cpu.between(before, after)
    assert read == {key: recorded["counters"][key] for key in read}
    validity = Observation(device="cpu", counters=recorded["counters"]).validity(True, 0.001)
    assert validity.verdict == verdict
    assert validity.reasons == ([] if verdict == "valid" else ["other processes kept 1.25 of 2 CPUs busy"])


BUSY = "import time; end = time.time() + 20\nwhile time.time() < end: pass"
LOOK = """
import time, msgspec
from andrea_bench.measure.counters import Watch
watch = Watch("cpu"); watch.before(); time.sleep(1.0)
print(msgspec.json.encode(watch.after().validity(True)).decode())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's /proc/stat")
def test_two_busy_processes_beside_make_it_suspect():
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    try:
        said = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True).stdout
    finally:
        for other in others:
            other.kill()
            other.wait()
    found = json.loads(said)
    assert found["verdict"] in ("suspect", "invalid")
    assert any("other processes kept" in reason for reason in found["reasons"])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's /proc/stat")
def test_own_work_and_that_of_children_is_not_foreign():
    watch = Watch("cpu")
    watch.before()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.6: pass"], check=True)
    busy_before, after = watch._before, watch.after()
    grown = cpu.snapshot().busy_s - busy_before.busy_s
    assert after.counters["cpu_foreign_cpus"] * after.counters["cpu_window_s"] < grown - 0.5


def test_a_short_group_is_judged_by_the_second_before_its_end(monkeypatch):
    """Whatever happened long before, or during the pause before another try, does not count."""
    fixed = {"cpus": 2, "own_s": 0.0, "steal_s": 0.0, "reasons": {"temperature_celsius": "none"}}
    looks = iter(
        cpu.Snapshot(time_s=t, busy_s=busy, total_s=2 * t + 1, **fixed)
        for t, busy in [(0.0, 0.0), (9.0, 9.0), (9.1, 9.1), (11.0, 9.1), (11.1, 9.1)]
    )  # fmt: skip
    monkeypatch.setattr(module.cpu, "snapshot", lambda: next(looks))
    watch = Watch("cpu")
    watch.before()
    first = watch.after()
    assert first.counters["cpu_window_s"] == 9.1, "no look within it is a second old but the first"
    watch.before()
    second = watch.after()
    assert second.counters["interval_s"] == pytest.approx(0.1)
    assert second.counters["cpu_window_s"] == 2.0
    assert second.counters["cpu_foreign_cpus"] == 0.0


def test_cpu_counters_are_strict_json_with_reasons():
    watch = Watch("cpu")
    watch.before()
    read = watch.after().counters
    json.dumps(read, allow_nan=False)
    assert [n for n, v in read.items() if v is None and not read.get(f"{n}_reason")] == []
    assert read["cpu_affinity"] == cpu.ranges(cpu.affinity())


# ---- GPU ------------------------------------------------------------------------------------------------
def test_a_healthy_gpu_is_valid(stand_in):
    stand_in(pids=os.getpid())
    seen = watch_gpu()
    assert seen.validity(True, 0.0).verdict == "valid", seen.validity(True)
    assert throttled(seen) is None
    read = seen.counters
    assert (read["gpu_uuid"], read["gpu_sm_clock_mhz"], read["gpu_max_sm_clock_mhz"]) == (A, 2520, 2520)
    assert read["gpu_samples"] >= 4
    assert read["gpu_power_instant_watts"] == pytest.approx(310.0)
    assert read["gpu_foreign_processes"] == []
    assert read["gpu_slowdown_power_cap_s"] == 0.0
    assert read["gpu_pcie_sent_bytes"] == 1000
    json.dumps(read, allow_nan=False)


def test_a_power_capped_gpu_is_suspect_and_not_throttled(stand_in):
    stand_in(reasons="0x4", slowdown="74=400000000")
    seen = watch_gpu()
    assert seen.counters["gpu_event_reasons"] == ["software power cap"]
    assert seen.counters["gpu_slowdown_power_cap_s"] == pytest.approx(0.4)
    validity = seen.validity(True)
    assert validity.verdict == "suspect"
    assert validity.reasons[0].startswith("software power cap for 0.4 of ")
    assert throttled(seen) is None


def test_low_clocks_are_throttled_with_observed_and_nominal(stand_in):
    """TS05: 57 % of the maximum for ever; the caller's tries are bounded, the reason names both clocks."""
    stand_in(sm_clocks="1436", reasons="0x20")
    seen = watch_gpu()
    assert throttled(seen) == "SM clock 1436 of 2520 MHz (57%): software thermal slowdown"
    assert seen.validity(True).verdict == "invalid"


def test_clocks_that_recover_are_not_throttled(stand_in):
    stand_in(sm_clocks="1436,1436,1436,2520")
    assert throttled(watch_gpu(samples=9)) is None


def test_clocks_that_fall_half_way_show_in_the_lowest(stand_in):
    stand_in(sm_clocks="2520,2520,2520,1260", slowdown="270=200000000")
    seen = watch_gpu(samples=9)
    assert seen.counters["gpu_sm_clock_min_mhz"] == 1260
    assert seen.counters["gpu_sm_clock_mhz"] == 1260
    assert "SM clock 1260 of 2520 MHz (50%)" in throttled(seen)
    assert seen.validity(True).verdict == "invalid"


def test_clocks_low_on_purpose_are_suspect_only(stand_in):
    stand_in(sm_clocks="1436", reasons="0x2")
    seen = watch_gpu()
    assert throttled(seen) is None
    assert seen.validity(True).reasons == ["SM clock 1436 of 2520 MHz (57%): application clocks setting"]


def test_a_mig_slice_keeps_what_it_has(stand_in):
    stand_in(mig=1)
    seen = watch_gpu("MIG-cccccccc-0000-0000-0000-000000000003")
    read = seen.counters
    assert read["gpu_utilisation_percent"] is None
    assert read["gpu_utilisation_percent_reason"] == "not supported (MIG)"
    assert read["gpu_energy_joules_reason"] == "not split by MIG slice"
    assert read["gpu_sm_clock_mhz"] == 2520
    assert seen.validity(True).verdict == "valid"


def test_averages_ignore_the_absent():
    samples = [{"power_watts": 100.0}, {"power_watts": None, "power_watts_reason": "x"}, {"power_watts": 300.0}]
    read = module.summary(samples, {})
    assert read["gpu_power_watts"] == 200.0
    assert (read["gpu_sm_clock_mhz"], read["gpu_sm_clock_mhz_reason"]) == (None, "no reading")


def test_a_gpu_lost_in_the_middle(stand_in, monkeypatch):
    stand_in()
    watch = Watch("cuda:0", gpu_uuid=A)
    watch.before()
    monkeypatch.setenv("STAND_IN_LOST_AFTER", "0")
    seen = watch.after()
    assert seen.counters["gpu_lost"] is True
    assert seen.counters["gpu_energy_joules_reason"] == "GPU is lost"
    assert seen.validity(True).verdict == "invalid"
    assert "the GPU was lost" in seen.validity(True).reasons
    json.dumps(seen.counters, allow_nan=False)


@pytest.mark.parametrize(
    ("settings", "uuid", "words"),
    [
        ({"fail": "nvmlInit_v2=9"}, A, "the NVIDIA driver is not loaded"),
        ({"fail": "nvmlInit_v2=18"}, A, "reboot"),
        ({"cards": 0}, A, "no GPU with UUID"),
        ({}, "GPU-dddddddd-0000-0000-0000-000000000004", "no GPU with UUID GPU-dddd"),
        ({}, None, "neither UUID nor PCI id"),
    ],
)
def test_no_counters_without_the_right_card(stand_in, settings, uuid, words):
    stand_in(**settings)
    seen = watch_gpu(uuid)
    assert seen.counters["gpu_counters"] is None
    assert words in seen.counters["gpu_counters_reason"]
    assert not [name for name in seen.counters if name.startswith("gpu_sm")]
    assert seen.validity(True).verdict == "suspect"
    assert throttled(seen) is None


def test_all_queries_unsupported_still_gives_an_observation(stand_in):
    stand_in(fail="nvmlDeviceGetClockInfo=3,nvmlDeviceGetFieldValues=3,nvmlDeviceGetTemperatureV=3,"
             "nvmlDeviceGetPowerUsage=3,nvmlDeviceGetUtilizationRates=3,nvmlDeviceGetMemoryInfo_v2=3,"
             "nvmlDeviceGetMemoryInfo=3,nvmlDeviceGetTotalEnergyConsumption=3,"
             "nvmlDeviceGetComputeRunningProcesses_v3=3")  # fmt: skip
    seen = watch_gpu()
    assert seen.counters["gpu_sm_clock_mhz_reason"] == "not supported"
    assert seen.counters["gpu_foreign_processes_reason"] == "not supported"
    assert [n for n, v in seen.counters.items() if v is None and not seen.counters.get(f"{n}_reason")] == []
    assert seen.validity(True).verdict == "suspect"


def test_cuda_visible_devices_does_not_move_the_watch(stand_in, monkeypatch):
    stand_in()
    for visible in ("1", "1,0", B, ""):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert watch_gpu(B).counters["gpu_uuid"] == B
        assert watch_gpu(None, pci_bus_id="00000000:81:00.0").counters["gpu_uuid"] == B


def test_temperature_drift(stand_in):
    stand_in(temperatures="50,50,55,60,64")
    seen = watch_gpu(samples=6)
    assert seen.counters["gpu_temperature_start_celsius"] == 50
    assert seen.validity(True).reasons == ["GPU temperature moved from 50 to 64 degrees Celsius"]


@pytest.mark.parametrize(
    ("step_mj", "interval_s", "joules", "reason"),
    [
        (30_000, 2.0, 30.0, None),
        (30_000, 0.5, None, "window too short: 0.5 s, below 1 s"),
        (0, 2.0, None, "the energy counter did not move"),
        (-500, 2.0, None, "the counter was reset meanwhile"),
    ],
)
def test_energy_is_never_a_false_zero(stand_in, step_mj, interval_s, joules, reason):
    stand_in(energy_step_mj=step_mj)
    watch = module._GpuWatch(Nvml().find(A))
    watch.sampler = Sampler(dict)
    watch.sampler.start()
    watch.first, watch.totals = watch._sample(), watch.gpu.totals()
    read = watch.after(interval_s)
    assert (read["gpu_energy_joules"], read.get("gpu_energy_joules_reason")) == (joules, reason)


# ---- other processes on the card ------------------------------------------------------------------------
def test_foreign_processes_before_and_during(stand_in, monkeypatch):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = f"{os.getpid()},{other.pid}"  # a child is ours
    stand_in(pids=mine)
    watch = Watch("cuda:0", gpu_uuid=A)
    watch.before()
    monkeypatch.setenv("STAND_IN_PIDS", f"{mine},1")
    taken = len(watch._gpu.sampler._readings)
    while len(watch._gpu.sampler._readings) < taken + 2:
        time.sleep(0.005)
    monkeypatch.setenv("STAND_IN_PIDS", mine)
    seen = watch.after()
    other.communicate(b"\n")
    assert [process["pid"] for process in seen.counters["gpu_foreign_processes"]] == [1], "gone before the end"
    assert "other processes on the GPU: 1" in seen.validity(True).reasons


@pytest.fixture
def processes(tmp_path, monkeypatch):
    """A process table: this process 50 and its sibling 51 under 40, and 7 that has nothing to do with them."""
    for pid, children in {"self": "", 40: "50 51", 50: "", 51: "", 7: ""}.items():
        (tmp_path / f"proc/{pid}/task/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/task/{pid}/children").write_text(children)
    monkeypatch.setattr(os, "getpid", lambda: 50)
    monkeypatch.setattr(os, "getppid", lambda: 40)
    return tmp_path


@pytest.mark.parametrize(
    ("listed", "foreign"),
    [
        ([], []),
        ([50, 51, 40], []),  # a sweep's measuring processes are of one family
        ([50, 7], [7]),
        ([50, 9001], [9001]),  # the ids are the ones seen here, so one that ended is no member
        ([9001], []),  # ids of a container's host: this process
        ([9001, 9002], []),  # and its sibling
        ([9001, 9002, 9003], [9003]),
        ([7], [7]),
    ],
)
def test_whose_processes_are_foreign(stand_in, processes, listed, foreign):
    stand_in(pids=",".join(map(str, listed)))
    found = foreign_processes(Nvml().find(A), root=processes)
    assert [process["pid"] for process in found] == foreign


# ---- the sampler ----------------------------------------------------------------------------------------
def test_a_sampler_that_fails_says_so_and_keeps_what_it_has():
    answers = iter([{"n": 1}, {"n": 2}])
    sampler = Sampler(lambda: next(answers), period_s=0.001)
    sampler.start()
    while sampler.failure is None:
        time.sleep(0.001)
    assert sampler.stop() == [{"n": 1}, {"n": 2}]
    assert sampler.failure == "StopIteration: "


def test_a_sampler_ends_with_stop():
    sampler = Sampler(dict, period_s=0.001)
    sampler.start()
    sampler.stop()
    assert not sampler._thread.is_alive()
