"""What a machine did while a Run was measured: of each counter the span over all Groups."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from andrea_bench.report.content import MeasuredRun
from andrea_bench.report.counters import counters_line
from andrea_bench.report.words import counted, significant
from andrea_bench.statistics import median

MOST_REASONS = 3
Counters = Mapping[str, Any]


@dataclass(frozen=True)
class Reading:
    """A counter. times: from the counter's unit to the one shown; limit: the counter of the most there can be."""

    name: str
    counter: str
    unit: str
    write: Callable[[float], str]
    limit: str | None = None
    times: float = 1.0


READINGS = (
    Reading("CPUs that others kept busy", "cpu_foreign_cpus", "CPUs", "{:.2f}".format, "cpu_cpus"),
    Reading("steal", "cpu_steal_share", "%", "{:.1f}".format, times=100.0),
    Reading("CPU clock", "cpu_clock_mhz", "MHz", "{:.0f}".format, "cpu_max_clock_mhz"),
    Reading("CPU temperature", "cpu_temperature_celsius", "C", "{:.0f}".format),
    Reading("heat slowdowns", "cpu_throttle_events", "", "{:.0f}".format),
    Reading("held back by the quota", "cpu_quota_throttled_s", "s", significant),
    Reading("energy of all packages", "cpu_package_joules", "J", significant),
    Reading("SM clock", "gpu_sm_clock_mhz", "MHz", "{:.0f}".format, "gpu_max_sm_clock_mhz"),
    Reading("lowest SM clock", "gpu_sm_clock_min_mhz", "MHz", "{:.0f}".format, "gpu_max_sm_clock_mhz"),
    Reading("GPU power", "gpu_power_watts", "W", "{:.0f}".format, "gpu_power_limit_watts"),
    Reading("GPU temperature", "gpu_temperature_celsius", "C", "{:.0f}".format),
    Reading("GPU busy", "gpu_utilisation_percent", "%", "{:.0f}".format),
)


def meanwhile(run: MeasuredRun) -> list[tuple[str, str]]:
    """A line for each counter that was read: its least, median and most over the Groups, and of how many; then what
    slowed a GPU, and why nothing was read where nothing was."""
    watched = [found for group in run.groups if (found := _watched([row.record.counters for row in group.rows]))]
    lines = [(f"meanwhile, {one.name}", text) for one in READINGS if (text := _span(one, watched))]
    slowed = Counter(
        reason for counters in watched for reason in counters.get("gpu_event_reasons") or [] if reason != "idle"
    )
    if slowed:
        told = ", ".join(f"{reason} ({counted(n, 'Group')})" for reason, n in slowed.most_common())
        lines.append(("meanwhile, GPU slowed by", told))
    unread = Counter(
        counters_line(counters) or "" for counters in watched if all(counters.get(r.counter) is None for r in READINGS)
    )
    lines += [("meanwhile", f"{text} ({counted(n, 'Group')})") for text, n in unread.most_common(MOST_REASONS)]
    if len(unread) > MOST_REASONS:
        lines.append(("meanwhile", f"{counted(len(unread) - MOST_REASONS, 'more reason')}: `show --json` has all"))
    return lines


def _watched(of_rows: Sequence[Counters]) -> Counters:
    """The counters of a Group: its kernels are interleaved and share them."""
    return next((counters for counters in of_rows if counters), {})


def _span(one: Reading, watched: Sequence[Counters]) -> str | None:
    """As in `0.00 to 1.52 of 2 CPUs, median 0.01 (17 Groups)`; None where it was never read."""
    read = sorted(one.times * counters[one.counter] for counters in watched if counters.get(one.counter) is not None)
    if not read:
        return None
    limits = {counters[one.limit] for counters in watched if one.limit and counters.get(one.limit)}
    of = f" of {max(limits):.0f}" if limits else ""
    unit = f" {one.unit}" if one.unit else ""
    least, middle, most = map(one.write, (read[0], median(read), read[-1]))
    groups = counted(len(read), "Group")
    if least == most:
        return f"{most}{of}{unit} ({groups})"
    return f"{least} to {most}{of}{unit}, median {middle} ({groups})"
