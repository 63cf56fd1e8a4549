"""What would make measurements on this machine steadier, each as cause and cure. Advice only: nothing here
or elsewhere in the package changes a setting."""

from collections.abc import Iterator
from typing import NamedTuple

from andrea_bench.hardware.readings import Readings
from andrea_bench.measure.validity import MAX_STEAL_SHARE, MIN_CLOCK_SHARE, foreign_cpus_limit

FAULT_REASONS = {"hardware slowdown", "software thermal slowdown", "hardware thermal slowdown",
                 "hardware power brake", "board limit", "reliability limit"}  # fmt: skip


class Advice(NamedTuple):
    """One thing that unsettles timings, and what to do about it."""

    cause: str
    cure: str


def advice(machine: Readings, live: Readings) -> list[Advice]:
    """machine: environment's `cpu`. live: what Live.read gave after half a second or more."""
    found = [*_cpu_load(live["cpu"]), *_cpu_settings(machine)]
    on: dict[Advice, list[str]] = {}
    for gpu in live["gpus"]:
        for one in _gpu(gpu):
            on.setdefault(one, []).append(f"{gpu['name'] or 'GPU'} ({(gpu['uuid'] or 'no UUID')[:12]})")
    found += [Advice(f"{one.cause}: {', '.join(names)}", one.cure) for one, names in on.items()]
    if live["gpus"]:
        found.append(_locked_clocks(live["gpus"]))
    return found


def _cpu_load(now: Readings) -> Iterator[Advice]:
    steal, foreign, cpus = now["cpu_steal_share"], now["cpu_foreign_cpus"], now["cpu_cpus"]
    if steal is not None and steal > MAX_STEAL_SHARE:
        yield Advice(
            f"the hypervisor gives {steal:.0%} of this machine's CPU time to others (steal)",
            "measure at a quieter time or on a dedicated instance",
        )
    if foreign is not None and foreign > foreign_cpus_limit(cpus):
        yield Advice(
            f"other processes keep {foreign:.1f} of {cpus} CPUs busy", "end them, or measure when they are done"
        )
    if now["cpu_quota_throttled_s"]:
        yield Advice("this container's CPU quota holds processes back", "raise or remove the quota (--cpus)")


def _cpu_settings(machine: Readings) -> Iterator[Advice]:
    if machine.get("governor") not in (None, "performance"):
        yield Advice(
            f"the CPU governor {machine['governor']} changes clocks with the load",
            "sudo cpupower frequency-set -g performance",
        )
    if machine.get("boost"):
        yield Advice(
            "CPU boost lets clocks depend on heat and on how many cores are busy",
            "switch it off for a gate (echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost; on Intel "
            "intel_pstate/no_turbo), or compare within one Run only",
        )
    if machine.get("smt_active"):
        yield Advice(
            "two threads share each core (SMT)",
            f"pin to one thread a core (taskset -c), at most {machine.get('cores')} threads",
        )
    if machine.get("virtual_machine"):
        yield Advice(
            "this is a virtual machine: clocks, heat and neighbours can't be seen",
            "compare within one Run, spread over processes (--processes 5), or use bare metal",
        )


def _gpu(gpu: Readings) -> Iterator[Advice]:
    """Without the GPU's name, so that a cause which several share is one."""
    if gpu["processes"]:
        pids = ", ".join(str(process["pid"]) for process in gpu["processes"])
        yield Advice(f"processes {pids} use a GPU", "end them, or take another GPU")
    if gpu["mig_slice"]:
        return  # the rest is the whole card's, which is listed itself
    reasons = set(gpu["event_reasons"] or [])
    if "software power cap" in reasons:
        yield Advice(
            "the power limit holds clocks down now",
            "compare within one Run; or lock a lower clock that the limit allows",
        )
    faults = sorted(reasons & FAULT_REASONS)
    if faults:
        yield Advice(
            f"slowed down now by {', '.join(faults)}", "let it cool; check airflow, power supply and its cables"
        )
    if gpu["persistence_mode"] is False:
        yield Advice("the driver unloads between uses (persistence mode off)", "sudo nvidia-smi -pm 1")
    if gpu["display_active"]:
        yield Advice("it drives a display", "measure on another GPU, or without a desktop")


def _locked_clocks(gpus: list[Readings]) -> Advice:
    limits = [gpu["max_sm_clock_mhz"] for gpu in gpus if gpu["max_sm_clock_mhz"]]
    least = f", no less than {max(limits) * MIN_CLOCK_SHARE:.0f} MHz" if limits else ""
    return Advice(
        "GPUs choose their clocks by load, heat and power",
        f"for a gate, lock a clock that the card sustains{least} (sudo nvidia-smi -lgc MHZ,MHZ; back: -rgc)",
    )
