"""How long `gate` takes on two large Runs. Prints a table; not a test, since it times.

    python tests/gate_scale.py [CELLS...]        # default: 1000 10000

Each Run has so many cells, measured by so many processes of 30 samples each; the two differ by noise alone. Wall time,
CPU time and peak memory are those of `gate BASE HEAD --json` as a whole process.
"""

import os
import random
import sys
import tempfile
from pathlib import Path

import msgspec
from show_scale import KERNELS, NOW, SAMPLES, measure

from andrea_bench import Problem
from andrea_bench.record import CellHasher, Record, RunHead

SIZES = (1_000, 10_000)
PROCESSES = (4, 8, 12)
NOISE = 0.01  # of process medians
HEAD = f"{'cells':>7} {'processes':>9} {'MB a Run':>9} {'wall s':>7} {'CPU s':>6} {'peak GB':>7}"


def write_run(folder: Path, cells: int, processes: int, seed: int) -> float:
    """A Run whose processes differ by noise; its size in MB."""
    folder.mkdir()
    protocol = {"timing_mode": "host_wall", "cache": "warm", "threads": 1}
    (folder / "run.json").write_bytes(msgspec.json.encode(RunHead(started_at=NOW, complete=True, protocol=protocol)))
    generator = random.Random(seed)
    # Few enough to be drawn quickly, of full length in digits as real ones.
    drawn = [[generator.lognormvariate(5, 0.03) for _ in range(SAMPLES)] for _ in range(997)]
    count = processes * SAMPLES
    with open(folder / "records.jsonl", "wb") as out:
        for number in range(cells // len(KERNELS)):
            problem = Problem(d_model=768, n_head=12, seq_len=number + 1)
            hasher = CellHasher(problem)
            for kernel in KERNELS:
                samples = []
                for _ in range(processes):
                    scale = generator.lognormvariate(0, NOISE)
                    samples += [us * scale for us in generator.choice(drawn)]
                record = Record(
                    cell_id=hasher.cell_id("attention", "attention", kernel), suite="attention", op="attention",
                    kernel=kernel, problem=problem, device="cpu", status="ok", timing_mode="host_wall", cache="warm",
                    samples_us=samples, order=list(range(count)), block=[n // SAMPLES for n in range(count)],
                    round=[n % SAMPLES for n in range(count)], flops=problem.flops("attention"),
                    min_bytes=problem.min_bytes("attention"), started_at=NOW,
                )  # fmt: skip
                out.write(msgspec.json.encode(record) + b"\n")
    return (folder / "records.jsonl").stat().st_size / 1e6


def main() -> None:
    sizes = [int(argument.replace(",", "")) for argument in sys.argv[1:]] or SIZES
    print(f"{len(os.sched_getaffinity(0))} CPUs, {SAMPLES} samples a process\n{HEAD}")
    for cells in sizes:
        for processes in PROCESSES:
            with tempfile.TemporaryDirectory() as place:
                base, head = Path(place, "base"), Path(place, "head")
                write_run(base, cells, processes, 1)
                size_mb = write_run(head, cells, processes, 2)
                # Undecided cells are to be expected of noise.
                wall_s, cpu_s, peak_gb = measure("gate", base, head, "--on-inconclusive", "pass", "--json")
            print(
                f"{cells:>7,} {processes:>9} {size_mb:>9.0f} {wall_s:>7.1f} {cpu_s:>6.1f} {peak_gb:>7.2f}", flush=True
            )


if __name__ == "__main__":
    main()
