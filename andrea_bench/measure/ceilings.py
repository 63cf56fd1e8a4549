"""The ceilings of a machine: the best rate of a matrix product in each dtype, and of a copy."""

import functools
import math
from collections.abc import Callable

import torch

from andrea_bench.calibration import Ceilings
from andrea_bench.errors import EnvironmentUnfit
from andrea_bench.measure.clock import last_level_cache_bytes, make_clock

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CEILING_SECONDS = 1.5  # of trying each dtype, and the copy
CPU_SIZES, CUDA_SIZES = (256, 512, 1024, 2048), (2048, 4096, 8192)

Report = Callable[[str], None]


def ceilings(device: str, threads: int, report: Report) -> Ceilings:
    """Best matmul TFLOP/s by dtype, and best copy GB/s (bytes read plus bytes written), of several tries.

    Raises EnvironmentUnfit where torch finds no such device."""
    torch.set_num_threads(threads)
    kind, _, index = device.partition(":")
    cuda = kind == "cuda"
    if cuda and int(index or 0) >= torch.cuda.device_count():
        raise EnvironmentUnfit(f"torch {torch.__version__} finds no {device} here")
    if cuda:
        torch.cuda.set_device(int(index or 0))  # the clock's events belong to the current device
    found = Ceilings(threads=threads)
    for name, dtype in DTYPES.items():
        report(f"matmul {name}")
        try:
            found.matmul_tflops[name] = _matmul_tflops(device, dtype, CUDA_SIZES if cuda else CPU_SIZES)
        except RuntimeError as error:  # not implemented for this dtype on this device
            report(f"matmul {name}: can't run here: {' '.join(str(error).split())[:200]}")
    report("copy")
    size_bytes = 2**30 if cuda else max(64 * 2**20, 4 * last_level_cache_bytes())
    source = torch.ones(size_bytes // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    found.copy_gb_per_s = 2 * size_bytes / _best_us(device, lambda: target.copy_(source), CEILING_SECONDS) / 1e3
    return found


def _matmul_tflops(device: str, dtype: torch.dtype, sizes: tuple[int, ...]) -> float:
    """The best of square matmuls of growing size; one that would take longer than all tries is not begun
    (some CPUs have no fast path for float16)."""
    best = 0.0
    for n in sizes:
        if best and 2 * n**3 / best / 1e12 > CEILING_SECONDS:
            break
        a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        out = torch.empty(n, n, dtype=dtype, device=device)
        best_us = _best_us(device, functools.partial(torch.matmul, a, b, out=out), CEILING_SECONDS / len(sizes))
        best = max(best, 2 * n**3 / best_us / 1e6)
    return best


def _best_us(device: str, call: Callable[[], object], seconds: float) -> float:
    """The shortest time of one call, after a first untimed one."""
    clock = make_clock("cuda_event" if device.startswith("cuda") else "host_wall", "warm", device)
    call = clock.prepare(call)
    clock.sample(call)
    end, best = clock.now() + seconds, math.inf
    while clock.now() < end or math.isinf(best):
        best = min(best, clock.sample(call)[0])
    return best
