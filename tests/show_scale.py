"""How long `show` takes over a large Run, and how much memory. Prints a table; not a test, since it times.

    python tests/show_scale.py [RECORDS] [SAMPLES]

Makes a Run of RECORDS records (default 100,000) of SAMPLES samples each (default 30) in a temporary folder.
"""

import random
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from andrea_bench import Problem
from andrea_bench.record import CellHasher, Record, RunHead

NOW = "2026-01-02T03:04:05.678+00:00"
KERNELS = ("eager", "sdpa", "sdpa_flash", "triton_exact")


def write_run(folder: Path, records: int, samples: int) -> None:
    """A Run of that many records, whose timings are random."""
    (folder / "run.json").write_bytes(msgspec.json.encode(RunHead(started_at=NOW, complete=True)))
    generator = random.Random(1)
    with open(folder / "records.jsonl", "wb") as out:
        for number in range(records // len(KERNELS)):
            problem = Problem(d_model=768, n_head=12, seq_len=number + 1)
            hasher = CellHasher(problem)
            for kernel in KERNELS:
                record = Record(
                    cell_id=hasher.cell_id("attention", "attention", kernel), suite="attention", op="attention",
                    kernel=kernel, problem=problem, device="cpu", status="ok", timing_mode="host_wall", cache="warm",
                    samples_us=[generator.lognormvariate(5, 0.05) for _ in range(samples)],
                    order=list(range(samples)), block=[0] * samples, round=list(range(samples)),
                    flops=problem.flops("attention"), min_bytes=problem.min_bytes("attention"), started_at=NOW,
                )  # fmt: skip
                out.write(msgspec.json.encode(record) + b"\n")


def main() -> None:
    """Write, show, print what it took."""
    given = [int(argument) for argument in sys.argv[1:3]]
    records, samples = [*given, *(100_000, 30)[len(given) :]]
    with tempfile.TemporaryDirectory() as place:
        write_run(Path(place), records, samples)
        size = (Path(place) / "records.jsonl").stat().st_size
        done = subprocess.run(
            ["/usr/bin/time", "-f", "%e %M", sys.executable, "-m", "andrea_bench", "show", place],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    seconds, kilobytes = done.stderr.split()[-2:]
    print(f"{records:,} records of {samples} samples, {size / 1e9:.2f} GB: {seconds} s, {int(kilobytes) / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
