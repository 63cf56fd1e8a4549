"""The CPU's counters on Linux, from /proc and /sys: what the machine is, and what it did between two looks.

Each reading stands by itself: a value, or None beside `<name>_reason`. Elsewhere than on Linux all are
absent. `root` stands for `/`, so that recorded machines can be read.

Sources: proc(5) for /proc/stat and /proc/PID/stat (in ticks); the kernel's Documentation/ABI for
cpufreq (kHz), thermal_throttle, powercap (microjoules), hwmon (millidegrees); cgroup-v1 and -v2 cpu.stat.
"""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from andrea_bench.hardware.readings import Readings

ROOT = Path("/")
CPU_FOLDER = "sys/devices/system/cpu"
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")  # hwmon drivers that read a CPU
THROTTLED_KEYS = {"throttled_usec": 1e6, "throttled_time": 1e9}  # cgroup version 2, version 1


class Snapshot(msgspec.Struct, kw_only=True):
    """Counters that only grow, at one moment; two of them make an interval.

    cpus: the logical CPUs that this process may run on; busy_s, steal_s and total_s are summed over them.
    own_s: CPU time of this process and its children, live and ended. quota_s: time for which a cgroup's quota
    held it back. package_joules: RAPL energy, by domain. reasons: why something is None.
    """

    time_s: float
    cpus: int
    busy_s: float | None = None
    steal_s: float | None = None
    total_s: float | None = None
    own_s: float | None = None
    throttle_events: int | None = None
    quota_s: float | None = None
    package_joules: dict[str, tuple[float, float]] | None = None
    clock_mhz: float | None = None
    temperature_celsius: float | None = None
    reasons: dict[str, str] = {}


def snapshot(root: Path = ROOT) -> Snapshot:
    """A look at the counters; takes well under a millisecond on a small machine."""
    cpus = affinity()
    reasons: dict[str, str] = {}
    look = Snapshot(time_s=time.monotonic(), cpus=len(cpus), reasons=reasons)
    times = _read(reasons, ("busy_s", "steal_s", "total_s"), lambda: cpu_times(root, cpus))
    if times is not None:
        look.busy_s, look.steal_s, look.total_s = times
    look.own_s = _read(reasons, ("own_s",), lambda: own_seconds(root))
    look.throttle_events = _read(reasons, ("throttle_events",), lambda: throttle_events(root))
    look.quota_s = _read(reasons, ("quota_s",), lambda: quota_seconds(root))
    look.package_joules = _read(reasons, ("package_joules",), lambda: package_joules(root))
    look.clock_mhz = _read(reasons, ("clock_mhz",), lambda: clock_mhz(root, cpus))
    look.temperature_celsius = _read(reasons, ("temperature_celsius",), lambda: temperature_celsius(root))
    return look


def between(before: Snapshot, after: Snapshot) -> Readings:
    """What happened between two looks, as JSON-ready readings with their units.

    cpu_steal_share: of the time of the CPUs that this process may use, the share that the hypervisor gave to
    others. cpu_foreign_cpus: how many of those CPUs other processes kept busy on average. Both resolve
    one tick (10 ms) over the window; clock and temperature are those at its end.
    """
    window = after.time_s - before.time_s
    read: Readings = {"cpu_window_s": round(window, 3), "cpu_cpus": after.cpus}

    def put(name: str, fields: Iterable[str], value: Callable[[], float | int | None]) -> None:
        missing = [after.reasons.get(f) or before.reasons.get(f) for f in fields if
                   getattr(before, f) is None or getattr(after, f) is None]  # fmt: skip
        result = None if missing or window <= 0 else value()
        read[name] = result
        if result is None:
            read[f"{name}_reason"] = (missing or ["the counter went backwards"])[0]

    def grown(field: str) -> Any:
        return getattr(after, field) - getattr(before, field)

    put("cpu_steal_share", ("steal_s", "total_s"), lambda: _share(grown("steal_s"), grown("total_s")))
    put("cpu_foreign_cpus", ("busy_s", "own_s"),
        lambda: round(max(0.0, grown("busy_s") - grown("own_s")) / window, 3))  # fmt: skip
    put("cpu_throttle_events", ("throttle_events",), lambda: _not_negative(grown("throttle_events")))
    put("cpu_quota_throttled_s", ("quota_s",), lambda: _not_negative(round(grown("quota_s"), 4)))
    put("cpu_package_joules", ("package_joules",), lambda: _joules(before, after))
    put("cpu_clock_mhz", ("clock_mhz",), lambda: after.clock_mhz)
    put("cpu_temperature_celsius", ("temperature_celsius",), lambda: after.temperature_celsius)
    return read


def machine(root: Path = ROOT) -> Readings:
    """What the CPU is, and the settings that timings depend on."""
    cpus = affinity()
    cpufreq = f"{CPU_FOLDER}/cpu{cpus[0]}/cpufreq"
    core_lists = f"{CPU_FOLDER}/cpu[0-9]*/topology/core_cpus_list"
    read: Readings = {"logical_cpus": os.cpu_count(), "affinity": ranges(cpus)}
    calls: dict[str, Callable[[], Any]] = {
        "model": lambda: _cpuinfo(root, "model name"),
        "cores": lambda: len({_text(file) for file in _glob(root, core_lists)}),
        "smt_active": lambda: _text(root / CPU_FOLDER / "smt/active") == "1",
        "virtual_machine": lambda: "hypervisor" in _cpuinfo(root, "flags").split(),
        "governor": lambda: _text(root / cpufreq / "scaling_governor"),
        "max_clock_mhz": lambda: int(_text(root / cpufreq / "cpuinfo_max_freq")) / 1e3,
        "boost": lambda: _boost(root),
        "transparent_huge_pages": lambda: _chosen(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        "memory_bytes": lambda: _memory_bytes(root),
        "last_level_cache_bytes": lambda: last_level_cache_bytes(root),
    }  # fmt: skip
    for name, call in calls.items():
        reasons: dict[str, str] = {}
        read[name] = _read(reasons, (name,), call)
        read |= {f"{key}_reason": reason for key, reason in reasons.items()}
    return read


def affinity() -> list[int]:
    """The logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cpu_times(root: Path, cpus: list[int]) -> tuple[float, float, float]:
    """Busy, stolen and total seconds since boot, summed over `cpus`."""
    wanted = {f"cpu{n}" for n in cpus}
    busy = steal = total = 0
    for line in _text(root / "proc/stat").splitlines():
        name, *fields = line.split()
        if name in wanted:
            # user nice system idle iowait irq softirq steal; guest time is within user.
            user, nice, system, idle, iowait, irq, softirq, stolen = (int(f) for f in fields[:8])
            busy += user + nice + system + irq + softirq
            steal += stolen
            total += user + nice + system + irq + softirq + idle + iowait + stolen
    if not total:
        raise ValueError("no line for the CPUs of this process in /proc/stat")
    return busy / TICKS_PER_S, steal / TICKS_PER_S, total / TICKS_PER_S


def own_seconds(root: Path) -> float:
    """CPU seconds of this process, its ended children and its live descendants."""
    ticks = _process_ticks(root, "self")
    for pid in descendants(root):
        try:
            ticks += _process_ticks(root, str(pid))
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended in between: its time is in its parent's from now on
    return ticks / TICKS_PER_S


def descendants(root: Path = ROOT, pid: int | str = "self") -> list[int]:
    """The live children of a process, and theirs."""
    waiting, found = [str(pid)], []
    while waiting:
        try:
            tasks = sorted((root / f"proc/{waiting.pop()}/task").iterdir())
            children = [child for task in tasks for child in _text(task / "children").split()]
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended in between; or a kernel that doesn't list children
        waiting += children
        found += [int(child) for child in children]
    return found


def _process_ticks(root: Path, pid: str) -> int:
    # The command's name stands in parentheses and may hold spaces and parentheses itself.
    fields = _text(root / f"proc/{pid}/stat").rpartition(")")[2].split()
    utime, stime, cutime, cstime = (int(field) for field in fields[11:15])
    return utime + stime + cutime + cstime


def throttle_events(root: Path) -> int:
    """How often cores or packages slowed down for heat since boot (Intel)."""
    files = _glob(root, f"{CPU_FOLDER}/cpu[0-9]*/thermal_throttle/*_throttle_count")
    return sum(int(_text(file)) for file in files)


def quota_seconds(root: Path) -> float:
    """Seconds for which a CPU quota held this process's cgroup, or one above it, back."""
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # In a container the path may be the host's, and what is mounted is the container's own.
        base = root / "sys/fs/cgroup" / controllers
        folder = base / path.lstrip("/")
        for file in (base / "cpu.stat", *(f / "cpu.stat" for f in (folder, *folder.parents) if base in f.parents)):
            if file.is_file():
                values = dict(row.split() for row in _text(file).splitlines())
                found += [int(values[key]) / per_s for key, per_s in THROTTLED_KEYS.items() if key in values]
    if not found:
        raise FileNotFoundError("no cgroup with a CPU quota")
    return max(found)


def package_joules(root: Path) -> dict[str, tuple[float, float]]:
    """RAPL energy of each package in joules, and where its counter wraps."""
    read = {}
    for folder in _glob(root, "sys/class/powercap/intel-rapl:[0-9]"):
        limit = int(_text(folder / "max_energy_range_uj")) / 1e6
        read[folder.name] = (int(_text(folder / "energy_uj")) / 1e6, limit)
    return read


def clock_mhz(root: Path, cpus: list[int]) -> float:
    """The fastest clock of `cpus`: the one of the CPU that is at work."""
    folder = root / CPU_FOLDER
    return max(int(_text(folder / f"cpu{n}/cpufreq/scaling_cur_freq")) for n in cpus) / 1e3


def temperature_celsius(root: Path) -> float:
    """The hottest CPU sensor."""
    folders = [f for f in _glob(root, "sys/class/hwmon/hwmon*") if _text(f / "name") in CPU_SENSORS]
    values = [int(_text(file)) for folder in folders for file in folder.glob("temp*_input")]
    if not values:
        raise FileNotFoundError("no CPU sensor in /sys/class/hwmon")
    return max(values) / 1e3


def last_level_cache_bytes(root: Path = ROOT) -> int:
    """Size of the largest cache that CPU 0 sees."""
    sizes = [_text(file) for file in _glob(root, f"{CPU_FOLDER}/cpu0/cache/index*/size")]
    return max(int(size[:-1]) * {"K": 1024, "M": 1024**2}[size[-1]] for size in sizes)


def ranges(numbers: list[int]) -> str:
    """Sorted numbers as in `0-3,8`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(str(n) for n in part) for part in parts)


def _joules(before: Snapshot, after: Snapshot) -> float | None:
    """Energy of all packages; a counter that is lower than before has wrapped."""
    assert before.package_joules is not None
    assert after.package_joules is not None
    if before.package_joules.keys() != after.package_joules.keys():
        return None
    grown = 0.0
    for name, (joules, limit) in after.package_joules.items():
        difference = joules - before.package_joules[name][0]
        grown += difference if difference >= 0 else difference + limit
    return round(grown, 3)


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole > 0 and part >= 0 else None


def _not_negative(value: Any) -> Any:
    return value if value >= 0 else None


def _read(reasons: dict[str, str], names: Iterable[str], read: Callable[[], Any]) -> Any:
    """The reading, or None with the reason under each name."""
    try:
        return read()
    except PermissionError:
        reason = "no permission"
    except FileNotFoundError as error:
        # The kernel shows a virtual machine no clocks, sensors or energy: that is the usual cause.
        reason = f"this machine has no {error.filename}" if error.filename else str(error)
    except (OSError, ValueError, KeyError, IndexError) as error:
        reason = f"can't be read: {error}"
    reasons.update(dict.fromkeys(names, reason))
    return None


def _glob(root: Path, pattern: str) -> list[Path]:
    found = sorted(root.glob(pattern))
    if not found:
        raise FileNotFoundError(2, "no such file", f"/{pattern}")
    return found


def _text(file: Path) -> str:
    return file.read_text(errors="backslashreplace").strip()


def _cpuinfo(root: Path, key: str) -> str:
    for line in _text(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    raise ValueError(f"/proc/cpuinfo has no {key!r}")


def _memory_bytes(root: Path) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise ValueError("/proc/meminfo has no MemTotal")


def _boost(root: Path) -> bool:
    no_turbo = root / CPU_FOLDER / "intel_pstate/no_turbo"
    if no_turbo.is_file():
        return _text(no_turbo) == "0"
    return _text(root / CPU_FOLDER / "cpufreq/boost") == "1"


def _chosen(text: str) -> str:
    """The choice in brackets, as the kernel marks it: `always [madvise] never`."""
    return text.partition("[")[2].partition("]")[0] or text
