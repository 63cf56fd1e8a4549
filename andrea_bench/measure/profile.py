"""One untimed call under torch's profiler: peak memory of the call, and which implementation ran."""

from collections.abc import Callable
from typing import Any

import torch

# torch.profiler's own class imports torch._inductor first, two seconds in every measuring process.
from torch.autograd.profiler import profile as autograd_profile

# torch names the backend that scaled_dot_product_attention chose in the operator it dispatches to.
SDPA_OPERATORS = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash",
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_scaled_dot_product_attention_math": "math",
    "aten::_scaled_dot_product_fused_attention_overrideable": "overrideable",
}
MAIN_SHARE = 0.1  # of a call's time: what an operator must take to count as what ran


def peak_memory_bytes(call: Callable[[], Any], device: str) -> int | None:
    """Memory that the call allocates at its peak, above what was held before it.

    On CUDA the allocator's own peak; on a CPU the peak of the running sum of allocator events, so that
    memory which the C library keeps or gives back does not count."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with autograd_profile(profile_memory=True) as profile:
        call()
    held = peak = 0
    kineto = profile.kineto_results
    if kineto is None:
        return None
    events = [e for e in kineto.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def selected_backend(call: Callable[[], Any], device: str) -> str | None:
    """The SDPA backend of the call where it used one; on CUDA else the kernel that took the longest, on a
    CPU else the operators below the call that took a tenth of the time or more, the longest first (shorter
    ones would change places from call to call). None where unknown."""
    with autograd_profile(use_device="cuda" if device.startswith("cuda") else None) as profile:
        call()
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
    averages = profile.key_averages()
    names = {event.key for event in averages}
    for operator, backend in SDPA_OPERATORS.items():
        if operator in names:
            return backend
    if device.startswith("cuda"):
        on_device = sorted(averages, key=lambda e: -e.self_device_time_total)
        return on_device[0].key if on_device and on_device[0].self_device_time_total > 0 else None
    by_time = sorted(averages, key=lambda e: -e.self_cpu_time_total)
    whole = sum(event.self_cpu_time_total for event in by_time)
    most = [event.key for event in by_time if event.self_cpu_time_total > MAIN_SHARE * whole]
    return ", ".join(most) or None
