"""Watch: what the machine was doing while a Group was measured. No torch; nothing runs in a timed region.

On a CPU the counters of /proc and /sys are read before and after the samples, nothing in between. On a GPU
the driver is asked before and after, and a thread samples clocks, power and temperature meanwhile.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec

from andrea_bench.hardware import cpu
from andrea_bench.hardware.nvml import Absent, Device, Nvml
from andrea_bench.hardware.readings import Readings
from andrea_bench.measure.energy import MIN_WINDOW_S as MIN_ENERGY_WINDOW_S
from andrea_bench.measure.sampler import Sampler
from andrea_bench.measure.validity import judge, throttle_reason
from andrea_bench.record import Validity

# Below this, ticks of 10 ms say too little; the window then reaches back to an earlier look.
MIN_WINDOW_S = 1.0
CPU_SETTINGS = ("governor", "smt_active", "transparent_huge_pages", "affinity", "max_clock_mhz")


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of one Group on `device`, JSON-ready: each with its unit in its name, or null beside
    `<name>_reason`. Names begin with cpu_ or gpu_."""

    device: str
    counters: dict[str, Any]

    def validity(self, converged: bool, drift: float | None = None) -> Validity:
        """Whether samples taken meanwhile can be trusted; see validity.judge for the rules and arguments."""
        return judge(self.device, self.counters, converged, drift)


def throttled(observation: Observation) -> str | None:
    """Why the Group should be measured again after a pause; None where it need not be. The caller bounds
    the tries: after three, the samples are kept with status `throttled` and this reason."""
    return throttle_reason(observation.device, observation.counters)


class Watch:
    """Watches one device. before() and after() go around the samples of a Group, outside every timed region.

    device: "cpu", "cuda" or "cuda:N". gpu_uuid, pci_bus_id: of the GPU that CUDA measures on; NVML counts
    GPUs its own way, so without one of them, or where no GPU has it, there are no GPU counters and the
    reason is kept. A Watch may be used for many Groups, one after the other.
    """

    def __init__(self, device: str, gpu_uuid: str | None = None, pci_bus_id: str | None = None) -> None:
        self.device = device
        self._before = cpu.snapshot()
        self._looks = deque([self._before], maxlen=64)
        self._gpu: _GpuWatch | None = None
        self._gpu_absent: str | None = None
        if device.startswith("cuda"):
            try:
                self._gpu = _GpuWatch(Nvml().find(gpu_uuid, pci_bus_id))
            except Absent as error:
                self._gpu_absent = str(error)

    @property
    def gpu(self) -> Device | None:
        """The GPU that is watched; None on a CPU and where no driver tells of it."""
        return self._gpu.gpu if self._gpu else None

    def before(self) -> None:
        """Just before a Group's samples."""
        if self._gpu is not None:
            self._gpu.before()
        self._before = cpu.snapshot()
        self._looks.append(self._before)

    def after(self) -> Observation:
        """Just after a Group's samples: what happened since before()."""
        after = cpu.snapshot()
        interval_s = after.time_s - self._before.time_s
        start = self._window_start(after.time_s)
        self._looks.append(after)
        counters: Readings = {"interval_s": round(interval_s, 4)}
        counters |= cpu.between(start, after) | _cpu_settings()
        name = "temperature_celsius"
        first = {name: self._before.temperature_celsius, f"{name}_reason": self._before.reasons.get(name)}
        counters |= _renamed("cpu_temperature_start_celsius", name, first)
        if self._gpu is not None:
            counters |= self._gpu.after(interval_s)
        elif self._gpu_absent:
            counters |= {"gpu_counters": None, "gpu_counters_reason": self._gpu_absent}
        return Observation(device=self.device, counters=counters)

    def _window_start(self, end_s: float) -> cpu.Snapshot:
        """Where the CPU's window begins: with the samples; but a Group of a few ms spans no tick of the
        kernel's, so that the second before its end tells more."""
        if end_s - self._before.time_s >= MIN_WINDOW_S:
            return self._before
        long_enough = [look for look in self._looks if end_s - look.time_s >= MIN_WINDOW_S]
        return long_enough[-1] if long_enough else self._looks[0]


@cache
def _cpu_settings() -> Readings:
    """The settings of CPU_SETTINGS, read once: nothing here changes them."""
    read = cpu.machine()
    return {f"cpu_{key}": read[key] for name in CPU_SETTINGS for key in (name, f"{name}_reason") if key in read}


class _GpuWatch:
    """The GPU's part of a Watch."""

    def __init__(self, gpu: Device) -> None:
        self.gpu = gpu
        self.identity = gpu.identity()

    def before(self) -> None:
        self.gpu.lost = False
        self.first = self._sample()
        self.totals = self.gpu.totals()
        self.sampler = Sampler(self._sample)
        self.sampler.start()

    def _sample(self) -> Readings:
        return self.gpu.state() | {"others": foreign_processes(self.gpu)}

    def after(self, interval_s: float) -> Readings:
        samples = self.sampler.stop()
        totals = self.gpu.totals()
        last = self._sample()
        samples.append(last)
        read = summary(samples, self.identity)
        for name in self.totals:
            if not name.endswith("_reason"):
                read |= _grown(f"gpu_{name}", name, self.totals, totals)
        energy = _grown("gpu_energy_joules", "energy_joules", self.first, last)
        if energy["gpu_energy_joules"] is not None:
            doubt = None if energy["gpu_energy_joules"] > 0 else "the energy counter did not move"
            if interval_s < MIN_ENERGY_WINDOW_S:
                doubt = f"window too short: {interval_s:.2g} s, below {MIN_ENERGY_WINDOW_S:g} s"
            if doubt:
                energy = {"gpu_energy_joules": None, "gpu_energy_joules_reason": doubt}
        read |= energy
        read |= _renamed("gpu_temperature_start_celsius", "temperature_celsius", self.first)
        read |= _foreign([self.first["others"], *(sample["others"] for sample in samples)])
        read["gpu_lost"] = self.gpu.lost
        if self.sampler.failure:
            read["gpu_sampler_failure"] = self.sampler.failure
        return read


def summary(samples: list[Readings], identity: Readings) -> Readings:
    """GPU samples of one interval in few numbers: medians of clocks, mean power, what was seen of the rest.
    Absent readings are left out of each; where all are absent the last one's reason stays."""
    read: Readings = {"gpu_samples": len(samples)}

    def put(name: str, source: str, reduce: Callable[[list[Any]], Any]) -> None:
        present = [sample[source] for sample in samples if sample.get(source) is not None]
        read[name] = reduce(present) if present else None
        if not present:
            read[f"{name}_reason"] = samples[-1].get(f"{source}_reason", "no reading")

    put("gpu_sm_clock_mhz", "sm_clock_mhz", median)
    put("gpu_sm_clock_min_mhz", "sm_clock_mhz", min)
    put("gpu_memory_clock_mhz", "memory_clock_mhz", median)
    put("gpu_temperature_celsius", "temperature_celsius", lambda values: values[-1])
    put("gpu_power_watts", "power_watts", fmean)
    put("gpu_power_average_watts", "power_average_watts", fmean)
    put("gpu_power_instant_watts", "power_instant_watts", fmean)
    put("gpu_utilisation_percent", "gpu_utilisation_percent", fmean)
    put("gpu_memory_utilisation_percent", "memory_utilisation_percent", fmean)
    put("gpu_memory_used_bytes", "memory_used_bytes", max)
    put("gpu_performance_states", "performance_state", lambda values: sorted(set(values)))
    put("gpu_event_reasons", "event_reasons", lambda lists: list(dict.fromkeys(chain(*lists))))
    for name in ("uuid", "max_sm_clock_mhz", "power_limit_watts", "mig_slice"):
        read |= {f"gpu_{key}": identity[key] for key in (name, f"{name}_reason") if key in identity}
    return read


def foreign_processes(gpu: Device, root: Path = cpu.ROOT) -> list[Readings] | str:
    """The compute processes on the GPU other than this one's family: it, its descendants, its parent and that
    one's (a sweep's measuring processes are siblings); or why the driver tells none.

    In a container the driver may tell ids of the host, where this process has an id that it can't know: if
    its own isn't in the list, as many ids that don't exist here are taken to be the family's as it has members.
    """
    try:
        running = gpu.processes()
    except Absent as error:
        return str(error)
    parent = os.getppid()
    family = {os.getpid(), *cpu.descendants(root), *cpu.descendants(root, parent)}
    others = [process for process in running if process["pid"] not in family | {parent}]
    if len(others) == len(running):
        unseen = [process for process in others if not (root / f"proc/{process['pid']}").exists()]
        for process in unseen[: len(family)]:
            others.remove(process)
    return others


def _foreign(looks: list[list[Readings] | str]) -> Readings:
    """Every foreign process of any look; where no look could list them, why."""
    lists = [look for look in looks if not isinstance(look, str)]
    if not lists:
        return {"gpu_foreign_processes": None, "gpu_foreign_processes_reason": looks[-1]}
    return {"gpu_foreign_processes": list({p["pid"]: p for p in chain(*lists)}.values())}


def _renamed(name: str, source: str, readings: Mapping[str, Any]) -> Readings:
    """One reading under another name, with its reason where it is absent."""
    value = readings[source]
    return {name: value} if value is not None else {name: None, f"{name}_reason": readings[f"{source}_reason"]}


def _grown(name: str, source: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Readings:
    """How much a cumulative counter grew; a lower one than before was reset and tells nothing."""
    for read in (after, before):
        if read[source] is None:
            return {name: None, f"{name}_reason": read[f"{source}_reason"]}
    if after[source] < before[source]:
        return {name: None, f"{name}_reason": "the counter was reset meanwhile"}
    return {name: round(after[source] - before[source], 6)}
