"""Times of the attention kernels' tiles on this machine's GPU: the rows of kernels/andrea_kernels/flash/tiles.py.

    python tests/tile_times.py [--head-dims 64,72,128] [--launches forward,dkv,dq] [--csv FILE]

Compiles every tile that a search looks at (`tiles.candidates`) in all cores side by side, then times one after another,
causal and not, at 16384 tokens of 16 heads, as many blocks as any GPU can use; prints the fastest of each width, and
writes all to FILE, line by line, so that a run that is cut off keeps what it has. `sweep --autotune` times the whole
kernel at a Problem of one's own; this is the map that its rows lie on. bfloat16.
"""

import argparse
import csv
import math
import multiprocessing
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from andrea_kernels.flash import function, launch, tiles
from torch import Tensor

from andrea_bench.problem import Problem

WIDTHS = "16,32,48,64,72,80,96,104,112,128,144,160,176,192,208,224,256"
N_HEAD = 16
LENGTHS = (4096, 1024)
TOKENS = 16384
TIME_MS = 20.0  # of timed calls for each tile
# FLOPs of a launch in matrix products of seq_len x kv_len x head_dim.
PRODUCTS = {"forward": 2, "dkv": 4, "dq": 3}


class Job(NamedTuple):
    """One binary: a launch's tile for a head_dim."""

    launch: str
    head_dim: int
    causal: bool
    tile: tiles.Tile


class Built(NamedTuple):
    """A compiled Job; reason: why it can't be launched, None where it can."""

    job: Job
    reason: str | None


def tensors(head_dim: int, causal: bool, seq_len: int, batch: int) -> tuple[launch.Call, dict[str, Tensor]]:
    """Random inputs, outputs, and the log-sums that a forward launch made of them."""
    shape = (batch, N_HEAD, seq_len, head_dim)
    made = {name: torch.randn(shape, device="cuda", dtype=torch.bfloat16) for name in launch.TENSORS}
    options: dict[str, Any] = {"causal": causal, "scale": head_dim**-0.5, "variant": "exact", "precision": "ieee"}
    made["out"], log_sum, run = function.prepare_forward(made["q"], made["k"], made["v"], **options)
    run()
    call = function.describe(made, **options)
    return call, made | {"log_sum": log_sum, "delta": torch.zeros_like(log_sum)}


def described(job: Job, call: launch.Call) -> launch.Launch:
    """The Launch of a Job."""
    with tiles.trying(job.launch, job.tile):
        made: launch.Launch = getattr(launch, job.launch)(call, architecture())
    return made


def architecture() -> int:
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def build(job: Job) -> Built:
    """Compile, in a process of the pool, and launch once: Triton keeps the binary on disk."""
    try:
        call, arguments = tensors(job.head_dim, job.causal, 256, 1)
        described(job, call).bind(arguments)()
        torch.cuda.synchronize()
    except Exception as error:  # too much shared memory, a compiler's crash: an answer like any other
        return Built(job, str(error).splitlines()[0][:150])
    return Built(job, None)


def median_us(run: Callable[[], None]) -> float:
    """Median of device times, by events around each call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    run()
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    calls = max(5, min(100, math.ceil(TIME_MS / max(start.elapsed_time(end), 1e-3))))
    pairs = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(calls)]
    for before, after in pairs:
        before.record()
        run()
        after.record()
    torch.cuda.synchronize()
    return 1000 * statistics.median(before.elapsed_time(after) for before, after in pairs)


def tflops(job: Job, batch: int, seq_len: int, time_us: float) -> float:
    """Rate of a launch's own products by the project's FLOP count."""
    problem = Problem(batch=batch, n_head=N_HEAD, head_dim=job.head_dim, seq_len=seq_len, causal=job.causal)
    return problem.flops(op="attention") * PRODUCTS[job.launch] / 2 / time_us / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--head-dims", default=WIDTHS)
    parser.add_argument("--launches", default="forward,dkv,dq")
    parser.add_argument("--csv", default="tile_times.csv")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("tile_times: needs a GPU that torch can use; there is none")
    multiprocessing.set_start_method("spawn")
    jobs = [
        Job(name, head_dim, causal, tile)
        for head_dim in map(int, given.head_dims.split(","))
        for name in given.launches.split(",")
        for causal in (True, False)
        for tile in tiles.candidates(name, architecture())
    ]
    with multiprocessing.Pool(os.cpu_count()) as pool:
        built = sorted(pool.imap_unordered(build, jobs), key=lambda one: (one.job.head_dim, one.job.causal))
    rates: dict[Job, list[float]] = defaultdict(list)
    with open(given.csv, "w", newline="", buffering=1) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["launch", "head_dim", "causal", "tile", "batch", "seq_len", "median_us", "tflops", "reason"])
        held: tuple[object, Any] = (None, None)
        for seq_len in LENGTHS:
            for one in built:
                job, batch, time_us, reason = one.job, TOKENS // seq_len, None, one.reason
                key = (job.head_dim, job.causal, seq_len)
                if reason is None:
                    if held[0] != key:
                        held = (None, None)  # free the last before the next is made
                        held = (key, tensors(job.head_dim, job.causal, seq_len, batch))
                    call, arguments = held[1]
                    time_us = median_us(described(job, call).bind(arguments))
                    rates[job].append(tflops(job, batch, seq_len, time_us))
                rate = "" if time_us is None else round(rates[job][-1], 1)
                table.writerow([*job, batch, seq_len, time_us, rate, reason])
    report(rates)


def report(rates: dict[Job, list[float]]) -> None:
    """The three tiles of each head_dim and launch whose rates have the largest geometric mean, with the rates."""
    by_tile: dict[tuple[str, int], dict[tiles.Tile, list[float]]] = defaultdict(lambda: defaultdict(list))
    for job, found in rates.items():
        by_tile[job.launch, job.head_dim][job.tile] += found
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; TFLOP/s at lengths {LENGTHS}, causal and not")
    for (name, head_dim), of_tile in sorted(by_tile.items()):
        complete = [(tile, values) for tile, values in of_tile.items() if len(values) == 2 * len(LENGTHS)]
        for tile, values in sorted(complete, key=lambda row: -math.prod(row[1]))[:3]:
            print(f"{name:8}{head_dim:4}  {tile!s:44}", *(f"{value:7.1f}" for value in values))


if __name__ == "__main__":
    main()
