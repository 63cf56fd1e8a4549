"""Calibrating a machine: its ceilings, and the noise between processes of the same code."""

import functools
import math
import time
from collections.abc import Callable

import torch

from andrea_bench.calibration import Ceilings, CellNoise, SuiteNoise
from andrea_bench.measure.clock import last_level_cache_bytes, make_clock
from andrea_bench.measure.pairs import BASE, HEAD, Pairs
from andrea_bench.measure.session import Worker
from andrea_bench.measure.task import Task
from andrea_bench.plan import Group
from andrea_bench.protocol import Protocol
from andrea_bench.statistics import median
from andrea_bench.verdicts import Policy
from andrea_bench.verdicts.judge import paired_logs
from andrea_bench.verdicts.replay import replay

ALLOWANCES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
REPLAYED_GATES = 100
MOST_SAME = 0.9  # share of A/A gates that must end as `same` for an allowance to count as met
TURN_SECONDS = 0.15  # as in ab
MAD_TO_SD = 1.4826  # of a normal distribution
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CEILING_SECONDS = 1.5  # of trying each dtype, and the copy
CPU_SIZES, CUDA_SIZES = (256, 512, 1024, 2048), (2048, 4096, 8192)
GATE_SECONDS = 120.0  # the default budget of ab: noise is judged for as many pairs as that allows

Report = Callable[[str], None]


def ceilings(device: str, threads: int, report: Report) -> Ceilings:
    """Best matmul TFLOP/s by dtype, and best copy GB/s (bytes read plus bytes written), of several tries."""
    torch.set_num_threads(threads)
    cuda = device.startswith("cuda")
    found = Ceilings(threads=threads)
    for name, dtype in DTYPES.items():
        report(f"matmul {name}")
        found.matmul_tflops[name] = _matmul_tflops(device, dtype, CUDA_SIZES if cuda else CPU_SIZES)
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


def suite_noise(groups: list[Group], device: str, protocol: Protocol, seconds: float, report: Report) -> SuiteNoise:
    """A/A of one suite's Groups for about so many seconds: pairs of processes of the code at hand."""
    tasks = []
    for group in groups:
        members: list[tuple[str, str]] = list(group.members)
        if members:
            tasks.append(
                Task(
                    suite=group.suite.name, problem=group.problem, members=members, device=device, device_name=device,
                    protocol=protocol,
                )
            )  # fmt: skip

    def start() -> Worker:
        return Worker(device, protocol.threads)

    pairs = Pairs((start, start), tasks, turn_seconds=TURN_SECONDS)
    began, longest = time.monotonic(), 0.0
    while pairs.count < 2 or time.monotonic() + longest < began + seconds:
        started = time.monotonic()
        pairs.measure()
        longest = max(longest, time.monotonic() - started)
        report(f"{groups[0].suite.name}: {pairs.count} pairs")
        if pairs.finished:
            break
    pair_seconds = (time.monotonic() - began) / max(1, pairs.count)
    cells = [
        CellNoise(
            cell_id=base.cell_id,
            kernel=base.kernel,
            problem=base.problem.label(),
            median_us=median(base.samples_us),
            log_ratios=paired_logs(base, head),
        )
        for base, head in zip(pairs.records(BASE), pairs.records(HEAD), strict=True)
        if base.samples_us and head.samples_us
    ]
    return summarise(cells, pairs.count, pair_seconds)


def summarise(cells: list[CellNoise], pairs: int, pair_seconds: float) -> SuiteNoise:
    """What the log ratios of A/A pairs mean for a gate of the default budget."""
    gate_pairs = max(2, int(GATE_SECONDS / pair_seconds))
    noise = [cell.log_ratios for cell in cells]
    spread = [MAD_TO_SD * median([abs(x) for x in logs]) for logs in noise]
    alarms, least = {}, None
    for allowance in ALLOWANCES if noise else ():
        policy = Policy(max_slowdown=allowance)
        found = replay(noise, policy, gates=REPLAYED_GATES, max_pairs=gate_pairs)
        alarms[f"{100 * allowance:g}%"] = (found["slower"] + found["broken"]) / REPLAYED_GATES
        if least is None and found["same"] >= MOST_SAME * REPLAYED_GATES:
            least = allowance
    return SuiteNoise(
        pairs=pairs,
        gate_pairs=gate_pairs,
        pair_seconds=pair_seconds,
        noise=median(spread) if spread else 0.0,
        false_alarm_rate=alarms,
        smallest_allowance=least,
        cells=cells,
    )
