"""The counters of a Group in one line for people: what was read; absent readings are left to the JSON."""

from collections.abc import Callable, Mapping
from typing import Any

Counters = Mapping[str, Any]


def counters_line(counters: Counters) -> str | None:
    """As in `CPU: others 0.02 of 2 CPUs, steal 0.0 %`; None where a Record has no counters."""
    if not counters:
        return None
    if "gpu_counters_reason" in counters:
        return f"GPU: not watched: {counters['gpu_counters_reason']}"
    return _gpu(counters) if "gpu_samples" in counters else _cpu(counters)


def _cpu(counters: Counters) -> str:
    parts = [
        _with(counters, "cpu_foreign_cpus", lambda v: f"others {v:.2f} of {counters['cpu_cpus']} CPUs"),
        _with(counters, "cpu_steal_share", lambda v: f"steal {100 * v:.1f} %"),
        _with(counters, "cpu_clock_mhz", lambda v: f"clock {v:.0f}{_of(counters, 'cpu_max_clock_mhz')} MHz"),
        _with(counters, "cpu_temperature_celsius", lambda v: f"{v:.0f} C"),
        _with(counters, "cpu_throttle_events", lambda v: f"{v} heat slowdowns" if v else None),
        _with(counters, "cpu_quota_throttled_s", lambda v: f"quota held back {v:.3g} s" if v else None),
        _with(counters, "cpu_package_joules", lambda v: f"{v:.3g} J of all packages"),
    ]
    return f"CPU: {_joined(parts) or counters.get('cpu_steal_share_reason', 'no reading')}"


def _gpu(counters: Counters) -> str:
    clock = f"{_of(counters, 'gpu_max_sm_clock_mhz')} MHz{_lowest(counters)}"
    parts = [
        _with(counters, "gpu_sm_clock_mhz", lambda v: f"SM clock {v:.0f}{clock}"),
        _with(counters, "gpu_power_watts", lambda v: f"{v:.0f}{_of(counters, 'gpu_power_limit_watts')} W"),
        _with(counters, "gpu_temperature_celsius", lambda v: f"{v:.0f} C"),
        _with(counters, "gpu_utilisation_percent", lambda v: f"busy {v:.0f} %"),
    ]
    slowed = [reason for reason in counters.get("gpu_event_reasons") or [] if reason != "idle"]
    if slowed:
        parts.append(f"slowed by {', '.join(slowed)}")
    return f"GPU: {_joined(parts) or counters.get('gpu_sm_clock_mhz_reason', 'no reading')}"


def _with(counters: Counters, name: str, text: Callable[[Any], str | None]) -> str | None:
    value = counters.get(name)
    return None if value is None else text(value)


def _of(counters: Counters, name: str) -> str:
    limit = counters.get(name)
    return f" of {limit:.0f}" if limit else ""


def _lowest(counters: Counters) -> str:
    lowest, clock = counters.get("gpu_sm_clock_min_mhz"), counters.get("gpu_sm_clock_mhz")
    return f" (lowest {lowest:.0f})" if lowest is not None and lowest != clock else ""


def _joined(parts: list[str | None]) -> str:
    return ", ".join(part for part in parts if part)
