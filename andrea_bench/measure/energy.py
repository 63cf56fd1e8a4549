"""Energy per call: measured in a window of its own, back to back, long enough to be true.

The driver's energy counter moves in steps of about 100 ms (ml.energy, "thermally stable profiling"), so a
window whose ends lie anywhere between two steps is off by up to one step at each end. On an A100 or H100 a
quarter of the run time is sampled at all (arXiv 2312.02741); the bound says nothing about that.
"""

import time
from collections.abc import Callable

import msgspec

from andrea_bench.hardware.nvml import Device

COUNTER_STEP_S = 0.1
MIN_WINDOW_S = 1.0


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """Energy of one call. relative_error_bound: what the counter's steps may have cut off or added at the
    window's ends, as a share. Where joules_per_call is None, reason says why."""

    joules_per_call: float | None = None
    average_watts: float | None = None
    tflop_per_joule: float | None = None
    relative_error_bound: float | None = None
    calls: int
    window_s: float
    reason: str | None = None


def energy_per_call(
    start_joules: float | None, end_joules: float | None, *, window_s: float, calls: int, flops: int = 0
) -> Energy:
    """Energy of one of `calls` calls between two readings of the counter, `window_s` seconds apart.
    flops: floating-point operations of one call (0 where it has none)."""
    reason = None
    if start_joules is None or end_joules is None:
        reason = "the GPU has no energy counter"
    elif window_s < MIN_WINDOW_S:
        reason = f"window too short: {window_s:.2g} s, below {MIN_WINDOW_S:g} s"
    elif calls < 1:
        reason = "no call ended within the window"
    elif end_joules < start_joules:
        reason = "the energy counter was reset meanwhile"
    elif end_joules == start_joules:
        reason = f"the energy counter did not move for {window_s:.2g} s"
    if reason is not None or start_joules is None or end_joules is None:
        return Energy(calls=calls, window_s=window_s, reason=reason)
    joules = end_joules - start_joules
    return Energy(
        joules_per_call=joules / calls,
        average_watts=joules / window_s,
        tflop_per_joule=flops * calls / joules / 1e12 if flops else None,
        relative_error_bound=2 * COUNTER_STEP_S / window_s,
        calls=calls,
        window_s=window_s,
    )


def measure_energy(
    gpu: Device,
    call: Callable[[], object],
    synchronize: Callable[[], object],
    *,
    window_s: float = 5.0,
    calls_per_batch: int = 1,
    flops: int = 0,
) -> Energy:
    """Run `call` back to back for `window_s` seconds and read the energy counter at both ends.

    synchronize waits for the GPU; it is called after each batch of `calls_per_batch` calls, so a batch
    should last some milliseconds. MIG slices have no energy of their own: null, with the reason.
    """
    synchronize()
    first = gpu.state()
    start_s = time.perf_counter()
    calls = 0
    while time.perf_counter() - start_s < window_s:
        for _ in range(calls_per_batch):
            call()
        synchronize()
        calls += calls_per_batch
    elapsed_s = time.perf_counter() - start_s
    last = gpu.state()
    energy = energy_per_call(
        first["energy_joules"], last["energy_joules"], window_s=elapsed_s, calls=calls, flops=flops
    )
    absent = last.get("energy_joules_reason") or first.get("energy_joules_reason")
    return msgspec.structs.replace(energy, reason=f"energy counter: {absent}") if absent else energy
