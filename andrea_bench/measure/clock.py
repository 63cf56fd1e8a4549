"""Clocks: how one call is timed. Three real ones and a fake one with the same method.

A clock gives (device microseconds, host microseconds or None) of one call. Whatever it needs besides the
call (flushing a cache, recording events, capturing a graph) happens outside what it reports.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from andrea_bench.record import TimingMode

Call = Callable[[], Any]

LEAST_HEAD_START_US = 200.0
MOST_HEAD_START_US = 20_000.0
# More than the boost clock of any GPU of the catalogue: at a lower one the sleep only lasts longer.
CYCLES_PER_US = 3000


class Clock(Protocol):
    """Times one call at a time."""

    timing_mode: TimingMode

    def prepare(self, call: Call) -> Call:
        """What `sample` is to be given for `call` (a captured graph, where the clock replays one)."""

    def sample(self, call: Call) -> tuple[float, float | None]:
        """Microseconds that the call took on the device, and on the host beside it."""

    def now(self) -> float:
        """Seconds, for time limits."""


class HostClock:
    """perf_counter around the call: right for a CPU, where a call returns when its work is done."""

    timing_mode: TimingMode = "host_wall"

    def __init__(self, flush: Callable[[], None] | None = None) -> None:
        self._flush = flush

    def prepare(self, call: Call) -> Call:
        return call

    def sample(self, call: Call) -> tuple[float, float | None]:
        if self._flush:
            self._flush()
        start = time.perf_counter_ns()
        result = call()
        end = time.perf_counter_ns()
        # Freeing the result is not part of the call.
        del result
        return (end - start) / 1e3, None

    def now(self) -> float:
        return time.monotonic()


class CudaEventClock:
    """A pair of CUDA events around the call; host time is taken to when the launch returns.

    The device is kept busy before the first event, by a sleep kernel that outlasts the host's work of queueing the
    call: launch latency stays out of the interval. How long that is differs from call to call (13 us for a matmul, over
    1 ms for a matmul for each head): where the queue was not ready in time, the sample is thrown away and the sleep of
    that call made longer.
    """

    timing_mode: TimingMode = "cuda_event"

    def __init__(self, device: str, flush: Callable[[], None] | None = None) -> None:
        import torch

        self._torch = torch
        self._device = torch.device(device)
        self._flush = flush
        self._head_start_us: WeakKeyDictionary[Call, float] = WeakKeyDictionary()

    def prepare(self, call: Call) -> Call:
        return call

    def sample(self, call: Call) -> tuple[float, float | None]:
        while True:
            head_start_us = self._head_start_us.setdefault(call, LEAST_HEAD_START_US)
            device_us, host_us, queued_us = self._sample(call, head_start_us)
            if queued_us <= head_start_us or head_start_us >= MOST_HEAD_START_US:
                # A call that waits for the device itself is never queued in time, and is taken as it is. One slow
                # launch must not lengthen every later sleep: the head start follows what the call needs.
                self._head_start_us[call] = max(LEAST_HEAD_START_US, min(head_start_us, 3 * queued_us))
                return device_us, host_us
            self._head_start_us[call] = min(2 * queued_us, MOST_HEAD_START_US)

    def _sample(self, call: Call, head_start_us: float) -> tuple[float, float, float]:
        """Microseconds on the device, of the launch on the host, and until all was queued behind the sleep."""
        cuda = self._torch.cuda
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda.synchronize(self._device)
        if self._flush:
            self._flush()
        asleep = time.perf_counter_ns()
        cuda._sleep(int(head_start_us * CYCLES_PER_US))
        begin.record()
        host_start = time.perf_counter_ns()
        result = call()
        host_end = time.perf_counter_ns()
        end.record()
        queued = time.perf_counter_ns()
        cuda.synchronize(self._device)
        del result
        return begin.elapsed_time(end) * 1e3, (host_end - host_start) / 1e3, (queued - asleep) / 1e3

    def now(self) -> float:
        return time.monotonic()


class CudaGraphClock(CudaEventClock):
    """The call captured once as a CUDA graph and replayed between events: no launch work on the host."""

    timing_mode: TimingMode = "cuda_graph"

    def prepare(self, call: Call) -> Call:
        import gc

        cuda = self._torch.cuda
        stream = cuda.Stream(self._device)
        stream.wait_stream(cuda.current_stream(self._device))
        with cuda.stream(stream):
            for _ in range(3):
                call()
        cuda.current_stream(self._device).wait_stream(stream)
        graph = cuda.CUDAGraph()
        # A finaliser that unloads a module during capture would invalidate the graph.
        gc.disable()
        try:
            with cuda.graph(graph):
                result = call()
        finally:
            gc.enable()

        def replay() -> Any:
            graph.replay()
            return result

        return replay


class FakeClock:
    """Reports made-up times and runs nothing, so that all from plan to report can be tested without timing.

    A call of kernel i takes (i + 1) * 100 microseconds within a seeded spread of 1 %. Time limits see one
    millisecond pass per sample.
    """

    timing_mode: TimingMode = "host_wall"

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._now = 0.0
        self._known: list[Call] = []

    def prepare(self, call: Call) -> Call:
        self._known.append(call)
        return call

    def sample(self, call: Call) -> tuple[float, float | None]:
        self._now += 1e-3
        level = 100.0 * (self._known.index(call) + 1)
        return level * (1 + self._random.uniform(-0.01, 0.01)), None

    def now(self) -> float:
        return self._now


def make_clock(timing_mode: str, cache: str, device: str) -> Clock:
    """The clock of a Protocol on a device ("cpu", "cuda", "cuda:N")."""
    flush = _flusher(device) if cache == "cold" else None
    if timing_mode == "host_wall":
        return HostClock(flush)
    if timing_mode == "cuda_event":
        return CudaEventClock(device, flush)
    return CudaGraphClock(device, flush)


def _flusher(device: str) -> Callable[[], None]:
    """Writes over twice the last-level cache, so that nothing of the inputs stays in it."""
    import torch

    if device.startswith("cuda"):
        size_bytes = 2 * torch.cuda.get_device_properties(device).L2_cache_size
    else:
        size_bytes = 2 * last_level_cache_bytes()
    buffer = torch.empty(size_bytes // 4, dtype=torch.int32, device=device)
    return lambda: _discard(buffer.fill_(1))


def last_level_cache_bytes() -> int:
    """Size of the CPU's largest cache as Linux tells it; 64 MiB where it doesn't."""
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text().strip()
        unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KMG")) * unit)
    return max(sizes, default=64 * 2**20)


def _discard(_: Any) -> None:
    return None
