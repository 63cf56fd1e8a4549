"""CPU counters from written-out /proc and /sys trees, whose right answers are counted by hand."""

import os
import subprocess
import sys
import time

import pytest

from andrea_bench.hardware import cpu

TICKS = cpu.TICKS_PER_S


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A bare-metal machine with two cores of two threads each; this process may run on CPUs 0 and 2."""
    monkeypatch.setattr(cpu, "affinity", lambda: [0, 2])
    write = lambda path, text: (  # noqa: E731
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True),
        (tmp_path / path).write_text(text),
    )
    write("proc/stat", stat_lines(busy=0, steal=0))
    write("proc/self/stat", "77 (py) thon (x)) R 1 77 77 0 -1 0 0 0 0 0 100 20 30 7 20 0 9 0 1 2 3\n")
    write("proc/self/task/77/children", "80 \n")
    write("proc/80/stat", "80 (child) S 77 77 77 0 -1 0 0 0 0 0 1000 0 0 0 20 0 9 0 1 2 3\n")
    write("proc/80/task/80/children", "81")
    write("proc/80/task/81/children", "")
    write("proc/81/stat", "81 (grandchild) S 80 77 77 0 -1 0 0 0 0 0 0 500 0 0 20 0 9 0 1 2 3\n")
    write("proc/81/task/81/children", "")
    write("proc/self/cgroup", "0::/slice/job\n")
    write("sys/fs/cgroup/slice/job/cpu.stat", "usage_usec 5\nnr_throttled 3\nthrottled_usec 2500000\n")
    write("proc/cpuinfo", "processor : 0\nmodel name\t: Test CPU 9000\nflags\t\t: fpu avx2\n")
    write("proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 1 kB\n")
    base = cpu.CPU_FOLDER
    for n, mhz in enumerate((1200, 5000, 3400, 800)):
        write(f"{base}/cpu{n}/cpufreq/scaling_cur_freq", f"{mhz}000\n")
        write(f"{base}/cpu{n}/cpufreq/cpuinfo_max_freq", "4000000\n")
        write(f"{base}/cpu{n}/cpufreq/scaling_governor", "powersave\n")
        write(f"{base}/cpu{n}/topology/core_cpus_list", f"{n % 2},{n % 2 + 2}\n")
        write(f"{base}/cpu{n}/thermal_throttle/core_throttle_count", f"{n}\n")
    write(f"{base}/cpu0/cache/index2/size", "2048K\n")
    write(f"{base}/cpu0/cache/index3/size", "30M\n")
    write(f"{base}/smt/active", "1\n")
    write(f"{base}/intel_pstate/no_turbo", "0\n")
    write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")
    for package, joules in enumerate((10, 20)):
        write(f"sys/class/powercap/intel-rapl:{package}/energy_uj", f"{joules}000000\n")
        write(f"sys/class/powercap/intel-rapl:{package}/max_energy_range_uj", "262000000\n")
    write("sys/class/hwmon/hwmon0/name", "nvme\n")
    write("sys/class/hwmon/hwmon0/temp1_input", "99000\n")
    write("sys/class/hwmon/hwmon1/name", "coretemp\n")
    write("sys/class/hwmon/hwmon1/temp1_input", "61500\n")
    write("sys/class/hwmon/hwmon1/temp2_input", "58000\n")
    return tmp_path


def stat_lines(busy, steal):
    """/proc/stat with `busy` ticks of user time and `steal` stolen ones more, on CPU 2; CPU 1 isn't ours."""
    return (
        "cpu  1 2 3 4 5 6 7 8 0 0\n"
        "cpu0 100 10 20 5000 40 5 6 0 50 0\n"
        "cpu1 9999 0 0 0 0 0 0 9999 0 0\n"
        f"cpu2 {100 + busy} 10 20 {5000 - busy - steal} 40 5 6 {3 + steal} 0 0\n"
        "cpu20 7 7 7 7 7 7 7 7 7 7\nintr 5 6\n"
    )


def test_times_of_the_cpus_at_hand(root):
    busy, steal, total = cpu.cpu_times(root, [0, 2])
    assert busy == 2 * (100 + 10 + 20 + 5 + 6) / TICKS, "user nice system irq softirq; guest is in user"
    assert steal == 3 / TICKS
    assert total == pytest.approx((2 * (141 + 40) + 5000 + 5003) / TICKS)


def test_own_time_counts_children_live_and_ended(root):
    assert cpu.own_seconds(root) == (100 + 20 + 30 + 7 + 1000 + 500) / TICKS
    assert cpu.descendants(root) == [80, 81]


def test_a_child_that_ended_in_between(root):
    (root / "proc/80/stat").unlink()
    assert cpu.own_seconds(root) == (157 + 500) / TICKS


def test_the_other_readings(root):
    look = cpu.snapshot(root)
    assert look.reasons == {}
    assert look.clock_mhz == 3400.0, "the fastest of ours, not of all"
    assert look.temperature_celsius == 61.5, "a CPU's sensor, not the disk's"
    assert look.throttle_events == 0 + 1 + 2 + 3
    assert look.quota_s == 2.5
    assert look.package_joules == {"intel-rapl:0": (10.0, 262.0), "intel-rapl:1": (20.0, 262.0)}


def test_cgroup_version_1(root):
    (root / "proc/self/cgroup").write_text("5:memory:/a\n3:cpu,cpuacct:/job\n0::/\n")
    folder = root / "sys/fs/cgroup/cpu,cpuacct/job"
    folder.mkdir(parents=True)
    (folder / "cpu.stat").write_text("nr_periods 9\nthrottled_time 1500000000\n")
    assert cpu.quota_seconds(root) == 1.5


def test_a_quota_of_a_cgroup_above(root):
    (root / "sys/fs/cgroup/slice/cpu.stat").write_text("throttled_usec 9000000\n")
    assert cpu.quota_seconds(root) == 9.0


def test_in_a_container_the_path_is_the_hosts(root):
    (root / "proc/self/cgroup").write_text("0::/docker/0a1b\n")
    (root / "sys/fs/cgroup/cpu.stat").write_text("nr_throttled 1\nthrottled_usec 500000\n")
    assert cpu.quota_seconds(root) == 0.5


def test_between_two_looks(root):
    before = cpu.snapshot(root)
    (root / "proc/stat").write_text(stat_lines(busy=60, steal=20))
    (root / "proc/self/stat").write_text(
        "77 (py) R 1 77 77 0 -1 0 0 0 0 0 110 20 30 7 20 0 9 0 1 2 3")  # fmt: skip
    (root / "sys/class/powercap/intel-rapl:0/energy_uj").write_text("4000000")  # wrapped
    (root / "sys/class/powercap/intel-rapl:1/energy_uj").write_text("21000000")
    after = cpu.snapshot(root)
    before.time_s, after.time_s = 10.0, 12.0
    read = cpu.between(before, after)
    assert read["cpu_window_s"] == 2.0
    assert read["cpu_foreign_cpus"] == pytest.approx((60 - 10) / TICKS / 2.0)
    # 60 busy ticks replace idle ones on one CPU, so the total grows by nothing: only looks at /proc/stat
    # with time passing do. The share is of the ticks that passed.
    assert read["cpu_package_joules"] == pytest.approx(4 + 262 - 10 + 1)
    assert read["cpu_throttle_events"] == 0


def test_steal_is_a_share_of_the_time_of_our_cpus():
    look = dict(cpus=2, busy_s=0.0, own_s=0.0, reasons={})
    before = cpu.Snapshot(time_s=0.0, steal_s=1.0, total_s=100.0, **look)
    after = cpu.Snapshot(time_s=5.0, steal_s=1.5, total_s=110.0, **look)
    assert cpu.between(before, after)["cpu_steal_share"] == 0.05


def test_counters_that_go_backwards_tell_nothing():
    """After a live migration of a virtual machine, or a suspend."""
    look = dict(cpus=1, busy_s=0.0, own_s=0.0, reasons={})
    before = cpu.Snapshot(time_s=0.0, steal_s=2.0, total_s=100.0, quota_s=3.0, **look)
    after = cpu.Snapshot(time_s=5.0, steal_s=1.0, total_s=110.0, quota_s=0.0, **look)
    read = cpu.between(before, after)
    for name in ("cpu_steal_share", "cpu_quota_throttled_s"):
        assert (read[name], read[f"{name}_reason"]) == (None, "the counter went backwards")


ABSENT = {
    "proc/stat": ("busy_s", "steal_s", "total_s"),
    "proc/self/stat": ("own_s",),
    "proc/self/cgroup": ("quota_s",),
    "sys/class/powercap/intel-rapl:1/energy_uj": ("package_joules",),
    f"{cpu.CPU_FOLDER}/cpu2/cpufreq/scaling_cur_freq": ("clock_mhz",),
    "sys/class/hwmon/hwmon1/name": ("temperature_celsius",),
}


@pytest.mark.parametrize("how", ["missing", "garbage"])
@pytest.mark.parametrize("file", ABSENT)
def test_each_absent_reading_is_null_with_its_reason(root, file, how):
    if how == "missing":
        (root / file).unlink()
    else:
        (root / file).write_bytes(b"cpu0 \xff x\n")
    look = cpu.snapshot(root)
    for name in ABSENT[file]:
        assert getattr(look, name) is None
        assert look.reasons[name]
    assert set(look.reasons) == set(ABSENT[file])
    read = cpu.between(look, look)
    assert all(f"{name}_reason" in read for name, value in read.items() if value is None)


def test_no_permission_is_said(root, monkeypatch):
    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cpu, "package_joules", refuse)
    assert cpu.snapshot(root).reasons["package_joules"] == "no permission"


def test_elsewhere_than_on_linux_all_are_absent(tmp_path):
    look = cpu.snapshot(tmp_path)
    assert look.busy_s is look.own_s is look.clock_mhz is None
    assert look.reasons["busy_s"].endswith("proc/stat")
    read = cpu.machine(tmp_path)
    assert read["model"] is None
    assert read["model_reason"]
    assert read["logical_cpus"] == os.cpu_count()


def test_machine(root):
    read = cpu.machine(root)
    assert read == {
        "logical_cpus": os.cpu_count(), "affinity": "0,2", "model": "Test CPU 9000", "cores": 2,
        "smt_active": True, "virtual_machine": False, "governor": "powersave", "max_clock_mhz": 4000.0,
        "boost": True, "transparent_huge_pages": "never", "memory_bytes": 2**30,
        "last_level_cache_bytes": 30 * 2**20,
    }  # fmt: skip


@pytest.mark.parametrize(("numbers", "text"), [([0], "0"), ([0, 1, 2, 3, 8], "0-3,8"), ([1, 3, 4], "1,3-4"), ([], "")])
def test_ranges(numbers, text):
    assert cpu.ranges(numbers) == text


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's own /proc")
def test_this_machines_own_time_agrees_with_the_interpreters():
    before, mine = cpu.own_seconds(cpu.ROOT), sum(os.times()[:4])
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    subprocess.run([sys.executable, "-c", "sum(range(2_000_000))"], check=True)
    assert cpu.own_seconds(cpu.ROOT) - before == pytest.approx(sum(os.times()[:4]) - mine, abs=0.08)
