"""A rate that no such machine can reach is a mistake in measuring, not a record.

A GPU that was not waited for, or full lengths counted where half was computed, shows as TFLOP/s above the peak.
"""

from andrea_bench.hardware import match_device_name

# Boards boost above the clock that their peak is stated for: an RTX 5090 measured 236 of 209.5 bf16 TFLOP/s
# (zzc0721/torch-performance-test-data 200).
BOOST_MARGIN = 1.25
# FLOP per clock of one x86 core: two 512-bit FMA units in float32; AMX tiles in 16-bit types (16 x 16 x 32
# multiply-adds in 16 clocks). Far above what most cores have: only what is impossible is to be caught.
CPU_FLOP_PER_CLOCK = {"float32": 64, "bfloat16": 1024, "float16": 1024}
CPU_CLOCK_GHZ = 7.0  # no core runs faster


def peak_tflops(device_name: str | None, dtype: str, threads: int) -> float | None:
    """TFLOP/s that can't be exceeded: of the GPU that torch calls `device_name`, or (None) of a CPU with
    `threads` threads. None where the GPU is not in the catalogue or its rate is not published."""
    if device_name is None:
        return threads * CPU_FLOP_PER_CLOCK[dtype] * CPU_CLOCK_GHZ / 1e3 if dtype in CPU_FLOP_PER_CLOCK else None
    gpu = match_device_name(device_name)
    peak = gpu.peak_tflops(dtype) if gpu else None
    return peak * BOOST_MARGIN if peak else None


def implausible(flops: int, median_us: float, limit_tflops: float | None) -> str | None:
    """Why a time can't be true; None where nothing speaks against it."""
    rate = flops / median_us / 1e6
    if limit_tflops is None or rate <= limit_tflops:
        return None
    return f"implausible: {rate:.3g} TFLOP/s, above the {limit_tflops:.3g} that this device can do at most"
