"""Whether a Record's samples can be trusted, judged from its counters alone: the same for a fresh
observation and a stored one.

`invalid`: the samples describe a machine that was held back, and won't repeat. Gates refuse them.
- the GPU was lost, or its SM clock (median of the samples) was below 75 % of its maximum: nvbench's threshold
  for a throttled sample;
- thermal slowdown or power brake for more than a tenth of the time, a hypervisor that took more than a
  tenth of the CPU, a CPU quota that held the process back for more than a tenth: times are then off by about
  as much, beyond what a gate could resolve.
All but a lost GPU are also `throttled`: worth another try after a pause.

`suspect`: the figure may be off by some per cent, and pairing or more blocks may still carry a verdict.
- any slowdown time at all. A power cap is no more than that while the clock holds: boards with a low power
  limit run capped whenever they work, and no pause would change it;
- an SM clock below 75 % that the application clocks setting explains: low on purpose, and steady;
- a CPU clock below 75 % of its maximum: that maximum is one for a single busy core, which many never hold;
- another process on the GPU, or on the CPU for more than 5 % of the CPUs at hand (at most half a CPU: two
  busy processes disturb caches and memory of any machine);
- steal above 2 %; a temperature that moved by more than 10 degrees (leakage and clocks follow it);
- an interval that did not converge, or timings that drifted by more than 5 % within the Group;
- a machine whose state could not be read at all.

Host counters of a GPU's Record are kept but not judged: they don't touch what the GPU timed.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from andrea_bench.record import Validity

MIN_CLOCK_SHARE = 0.75
MAX_STEAL_SHARE = 0.02
MAX_FOREIGN_SHARE, MAX_FOREIGN_CPUS = 0.05, 0.5
MAX_TEMPERATURE_DRIFT_CELSIUS = 10
MAX_DRIFT = 0.05
HELD_BACK_SHARE = 0.10
TICK_S = 0.01  # resolution of /proc/stat

# Slowdowns that hold a card back for heat or supply; a power cap and sync boost are ordinary operation.
SLOWDOWNS = {
    "power_cap": "software power cap", "sync_boost": "sync boost",
    "software_thermal": "software thermal slowdown", "hardware_thermal": "hardware thermal slowdown",
    "power_brake": "hardware power brake",
}  # fmt: skip
FAULTS = ("software_thermal", "hardware_thermal", "power_brake")

Severity = Literal["suspect", "invalid", "throttled"]
Mark = tuple[Severity, str]


def judge(device: str, counters: Mapping[str, Any], converged: bool, drift: float | None) -> Validity:
    """The verdict on samples taken under `counters`. converged: every interval reached its target.
    drift: relative change of the timings from the Group's first to its last part (0.03 is 3 %), or None."""
    found = list(marks(device, counters))
    if not converged:
        found.append(("suspect", "the interval of the median did not reach its target"))
    if drift is not None and abs(drift) > MAX_DRIFT:
        found.append(("suspect", f"timings drifted by {drift:+.1%} within the group"))
    if not found:
        return Validity()
    worst: Literal["suspect", "invalid"] = (
        "suspect" if all(severity == "suspect" for severity, _ in found) else "invalid"
    )
    return Validity(verdict=worst, reasons=[text for _, text in found])


def throttle_reason(device: str, counters: Mapping[str, Any]) -> str | None:
    """Why these samples count as throttled; None where they don't. With what was seen and what is nominal."""
    reasons = [text for severity, text in marks(device, counters) if severity == "throttled"]
    return "; ".join(reasons) or None


def marks(device: str, counters: Mapping[str, Any]) -> Iterator[Mark]:
    """Everything that speaks against the samples."""
    yield from gpu_marks(counters) if device.startswith("cuda") else cpu_marks(counters)


def gpu_marks(counters: Mapping[str, Any]) -> Iterator[Mark]:
    if counters.get("gpu_counters_reason"):
        yield "suspect", f"the GPU was not watched: {counters['gpu_counters_reason']}"
        return
    if counters.get("gpu_lost"):
        yield "invalid", "the GPU was lost"
    clock, nominal = counters.get("gpu_sm_clock_mhz"), counters.get("gpu_max_sm_clock_mhz")
    if clock is not None and nominal and clock < MIN_CLOCK_SHARE * nominal:
        why = [r for r in counters.get("gpu_event_reasons") or [] if r != "idle"]
        text = f"SM clock {clock:.0f} of {nominal:.0f} MHz ({clock / nominal:.0%})"
        text += f": {', '.join(why)}" if why else ""
        yield "suspect" if why == ["application clocks setting"] else "throttled", text
    if clock is None and all(counters.get(f"gpu_slowdown_{kind}_s") is None for kind in SLOWDOWNS):
        reason = counters.get("gpu_sm_clock_mhz_reason", "no reading")
        yield "suspect", f"neither the clock nor the slowdowns of the GPU can be read: {reason}"
    window = counters.get("interval_s") or 0
    for kind, name in SLOWDOWNS.items():
        seconds = counters.get(f"gpu_slowdown_{kind}_s")
        if seconds:
            held_back = kind in FAULTS and seconds > HELD_BACK_SHARE * window
            yield "throttled" if held_back else "suspect", f"{name} for {seconds:.3g} of {window:.3g} s"
    foreign = counters.get("gpu_foreign_processes")
    if foreign:
        pids = ", ".join(str(process["pid"]) for process in foreign)
        yield "suspect", f"other processes on the GPU: {pids}"
    start, end = counters.get("gpu_temperature_start_celsius"), counters.get("gpu_temperature_celsius")
    if start is not None and end is not None and abs(end - start) > MAX_TEMPERATURE_DRIFT_CELSIUS:
        yield "suspect", f"GPU temperature moved from {start} to {end} degrees Celsius"


def cpu_marks(counters: Mapping[str, Any]) -> Iterator[Mark]:
    window, cpus = counters.get("cpu_window_s") or 0, counters.get("cpu_cpus") or 1
    tick = TICK_S / window if window else 1.0  # as CPUs: what one tick more or less would change
    steal = counters.get("cpu_steal_share")
    foreign = counters.get("cpu_foreign_cpus")
    if steal is None and foreign is None:
        yield "suspect", f"the CPU was not watched: {counters.get('cpu_steal_share_reason', 'no counters')}"
    if steal is not None and steal > MAX_STEAL_SHARE + tick / cpus:
        severity: Severity = "throttled" if steal > HELD_BACK_SHARE else "suspect"
        yield severity, f"steal {steal:.1%}: the hypervisor gave this machine's CPU time to others"
    # The kernel rounds busy and own time apart, so a short window may be off by a tick on each CPU.
    if foreign is not None and foreign > foreign_cpus_limit(cpus) + tick * cpus:
        yield "suspect", f"other processes kept {foreign:.2f} of {cpus} CPUs busy"
    clock, nominal = counters.get("cpu_clock_mhz"), counters.get("cpu_max_clock_mhz")
    if clock is not None and nominal and clock < MIN_CLOCK_SHARE * nominal:
        yield "suspect", f"CPU clock {clock:.0f} of {nominal:.0f} MHz ({clock / nominal:.0%})"
    if counters.get("cpu_throttle_events"):
        yield "suspect", f"the CPU slowed down for heat {counters['cpu_throttle_events']} times"
    quota = counters.get("cpu_quota_throttled_s")
    if quota:
        severity = "throttled" if quota > HELD_BACK_SHARE * window else "suspect"
        yield severity, f"the CPU quota held the process back for {quota:.3g} of {window:.3g} s"
    start, end = counters.get("cpu_temperature_start_celsius"), counters.get("cpu_temperature_celsius")
    if start is not None and end is not None and abs(end - start) > MAX_TEMPERATURE_DRIFT_CELSIUS:
        yield "suspect", f"CPU temperature moved from {start:.0f} to {end:.0f} degrees Celsius"


def foreign_cpus_limit(cpus: int) -> float:
    """How many of `cpus` CPUs other processes may keep busy before timings count as disturbed."""
    return min(MAX_FOREIGN_SHARE * cpus, MAX_FOREIGN_CPUS)
