"""How long large Runs take to be shown, and how much memory. Prints a table; not a test, since it times.

    python tests/show_scale.py [RECORDS...]        # default: 10000 100000 1000000

For each size it makes a Run of so many records of 30 samples each (1,000,000 of them take 1.4 GB of the temporary
folder, $TMPDIR) and times `show RUN`, `report RUN --parquet FILE` and `show FILE`: wall time, CPU time of all its
threads, peak memory.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from andrea_bench import Problem
from andrea_bench.record import CellHasher, Record, RunHead

NOW = "2026-01-02T03:04:05.678+00:00"
KERNELS = ("eager", "sdpa", "sdpa_flash", "triton_exact")
SAMPLES = 30
SIZES = (10_000, 100_000, 1_000_000)
HEAD = f"{'records':>9} {'GB':>5}  {'command':<17} {'wall s':>7} {'CPU s':>6} {'peak GB':>7}"


def write_run(folder: Path, records: int) -> None:
    """A Run of that many records, whose timings are random."""
    (folder / "run.json").write_bytes(msgspec.json.encode(RunHead(started_at=NOW, complete=True)))
    generator = random.Random(1)
    # Few enough to be drawn quickly, of full length in digits as real ones.
    drawn = [[generator.lognormvariate(5, 0.05) for _ in range(SAMPLES)] for _ in range(997)]
    with open(folder / "records.jsonl", "wb") as out:
        for number in range(records // len(KERNELS)):
            problem = Problem(d_model=768, n_head=12, seq_len=number + 1)
            hasher = CellHasher(problem)
            for kernel in KERNELS:
                record = Record(
                    cell_id=hasher.cell_id("attention", "attention", kernel), suite="attention", op="attention",
                    kernel=kernel, problem=problem, device="cpu", status="ok", timing_mode="host_wall", cache="warm",
                    samples_us=generator.choice(drawn), order=list(range(SAMPLES)), block=[0] * SAMPLES,
                    round=list(range(SAMPLES)), flops=problem.flops("attention"),
                    min_bytes=problem.min_bytes("attention"), started_at=NOW,
                )  # fmt: skip
                out.write(msgspec.json.encode(record) + b"\n")


def measure(*arguments: str | Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak memory in GB of one `andrea-bench` call. Its output goes nowhere."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "andrea_bench", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{arguments[0]} ended with {process.returncode}")
    return wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9


def measure_size(records: int, place: Path) -> None:
    """Print a line for each command on a Run of so many records."""
    write_run(place, records)
    size_gb = (place / "records.jsonl").stat().st_size / 1e9
    file = place / "cells.parquet"
    commands = {"show RUN": ("show", place), "report --parquet": ("report", place, "--parquet", file),
                "show FILE": ("show", file)}  # fmt: skip
    for name, arguments in commands.items():
        wall_s, cpu_s, peak_gb = measure(*arguments)
        print(f"{records:>9,} {size_gb:>5.2f}  {name:<17} {wall_s:>7.1f} {cpu_s:>6.1f} {peak_gb:>7.2f}", flush=True)


def main() -> None:
    sizes = [int(argument.replace(",", "")) for argument in sys.argv[1:]] or SIZES
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < max(sizes) * 2000:
        raise SystemExit(f"{tempfile.gettempdir()} has {free / 1e9:.1f} GB free, too little; set TMPDIR")
    print(f"{len(os.sched_getaffinity(0))} CPUs, records of {SAMPLES} samples\n{HEAD}")
    for records in sizes:
        with tempfile.TemporaryDirectory() as place:
            measure_size(records, Path(place))


if __name__ == "__main__":
    main()
