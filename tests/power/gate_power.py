"""How often the gate `ab` cries wolf, and how often it sleeps, measured with real kernels on this machine.

    python tests/power/gate_power.py --gates 20              # so many gates of every trial, resuming what there is
    python tests/power/gate_power.py --trial slow-5% --gates 40
    python tests/power/gate_power.py --replay                # the rule on resampled pairs of the A/A gates so far
    python tests/power/gate_power.py --table                 # only show

Every gate is one row of results.jsonl beside this file, with date and machine. A gate takes up to two minutes;
leave the machine alone meanwhile (the trial `load` makes its own load). Not part of `make test`, which replays the
rule on the published dispersion instead (tests/verdicts/test_sequential.py).
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("results.jsonl")
KERNELS = "per_head_loop,per_head_batched,fused_each,fused_qkv"
# Eight cells of a quarter to one millisecond.
SEQ_LENS, WIDTH = (64, 128), 256
CELLS = [
    "projection",
    "-a",
    f"seq_len={','.join(map(str, SEQ_LENS))}",
    "-a",
    "n_head=4",
    "-a",
    "head_dim=64",
    "--kernel",
    KERNELS,
]
SLOWED_FILE = Path("kernels/andrea_kernels/torch_projection.py")
FAST_LINE = "run=lambda: x @ w_qkv,"
BURST_SECONDS = 4.0  # mean length of a load burst; pauses are twice as long, so that a third of the time is loaded


@dataclass(frozen=True)
class Trial:
    """One row of the table. slowdown: extra work put into one kernel. target: in words, of 40 gates."""

    name: str
    allowance: str
    target: str
    slowdown: float = 0.0
    load: bool = False


TRIALS = (
    Trial("A/A 3%", "3%", "at most 1 slower, at least 36 same"),
    Trial("A/A 1%", "1%", "at most 1 slower"),
    Trial("slow-5%", "1%", "at least 38 slower", slowdown=0.05),
    Trial("slow-3%", "1%", "at least 30 slower, none same", slowdown=0.03),
    Trial("load 3%", "3%", "at most 1 slower", load=True),
    Trial("load 1%", "1%", "at most 1 slower", load=True),
)


def main() -> None:
    """Run what is asked for, then show the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gates", type=int, default=0, help="gates of each trial that there shall be in the end")
    parser.add_argument("--trial", choices=[trial.name for trial in TRIALS], action="append")
    parser.add_argument("--budget", default="120s")
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    chosen = [trial for trial in TRIALS if not options.trial or trial.name in options.trial]
    with tempfile.TemporaryDirectory(prefix="andrea-bench-power-") as folder:
        repository = clone(Path(folder)) if options.gates else None
        for trial in chosen if repository else ():
            commit_slowdown(repository, trial.slowdown)
            for number in range(len(rows(trial.name)), options.gates):
                row = one_gate(repository, trial, number, options.budget)
                append(row)
                print(f"{trial.name} gate {number + 1}: {row['verdict']}, {row['pairs']} pairs, {row['seconds']:.0f} s")
    if options.replay:
        replay_gates()
    print_table()


def clone(folder: Path) -> Path:
    """This project's last commit in a repository of its own."""
    repository = folder / "repository"
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(repository)], check=True)
    subprocess.run(["git", "-C", str(repository), "tag", "start"], check=True)
    return repository


def commit_slowdown(repository: Path, slowdown: float) -> None:
    """Check out the start, with extra work in fused_qkv: exponentials of the first elements of X."""
    git = ["git", "-C", str(repository), "-c", "user.name=power", "-c", "user.email=power@example.org"]
    subprocess.run([*git, "checkout", "--quiet", "--detach", "start"], check=True)
    if not slowdown:
        return
    file = repository / SLOWED_FILE
    extra = f"run=lambda: (x.flatten()[: {extra_columns(slowdown)} * x.shape[1]].exp(), x @ w_qkv)[1],"
    before = file.read_text()
    assert FAST_LINE in before, f"{SLOWED_FILE} has no line {FAST_LINE!r}"
    file.write_text(before.replace(FAST_LINE, extra))
    subprocess.run([*git, "commit", "--quiet", "-a", "-m", "slower"], check=True)


def extra_columns(slowdown: float) -> int:
    """Exponentials for each row of X that make fused_qkv slower by so much here, on average over the sizes."""
    import torch

    torch.set_num_threads(1)
    low, high = 0, WIDTH
    while high - low > 1:
        middle = (low + high) // 2
        ratios = [_slowed(middle, seq_len) for seq_len in SEQ_LENS]
        if math.prod(ratios) ** (1 / len(ratios)) < 1 + slowdown:
            low = middle
        else:
            high = middle
    print(f"{100 * slowdown:g} % slower: {high} exponentials a row")
    return high


def _slowed(columns: int, seq_len: int, rounds: int = 150) -> float:
    """Time with the extra work over time without, call by call in turns; before each call other kernels run, as
    in a Group, and leave it a cache that is not its own."""
    import torch

    from andrea_bench.statistics import paired_ratio

    x, w_qkv = torch.randn(1, seq_len, WIDTH), torch.randn(WIDTH, 3 * WIDTH)
    others = [torch.randn(WIDTH, WIDTH) for _ in range(9)]
    calls = (lambda: x @ w_qkv, lambda: (x.flatten()[: columns * seq_len].exp(), x @ w_qkv)[1])
    times_us: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, found in zip(calls, times_us, strict=True):
            for other in others:
                x @ other
            start = time.perf_counter_ns()
            result = call()
            found.append((time.perf_counter_ns() - start) / 1e3)
            del result
    return paired_ratio(times_us[1], times_us[0]).ratio


def one_gate(repository: Path, trial: Trial, number: int, budget: str) -> dict[str, Any]:
    """One gate by the command line, as CI would run it."""
    command = [sys.executable, "-m", "andrea_bench", "ab", *CELLS, "--base", "start", "--head", "HEAD", "--json",
               "--max-slowdown", trial.allowance, "--budget", budget, "--seed", str(1000 + number)]  # fmt: skip
    load_before = os.getloadavg()[0]
    started = time.monotonic()
    with bursts(number) if trial.load else nullcontext():
        done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"ab failed: {done.stderr}")
    document = json.loads(done.stdout)
    return {
        "trial": trial.name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "load_before": load_before,
        "verdict": document["verdict"],
        "exit_code": done.returncode,
        "seconds": time.monotonic() - started,
        "pairs": max((look["pairs"] for look in document["looks"]), default=0),
        "cells": [
            {name: cell[name] for name in ("kernel", "verdict", "ratio", "low", "high", "base_us", "head_us")}
            | {"seq_len": cell["problem"]["seq_len"]}
            for cell in document["cells"]
        ],
    }


@contextmanager
def bursts(seed: int) -> Iterator[None]:
    """A busy process during a random third of the time."""
    process = multiprocessing.Process(target=_burst, args=(seed,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _burst(seed: int) -> None:
    generator = random.Random(seed)
    while True:
        time.sleep(generator.expovariate(1 / (2 * BURST_SECONDS)))
        end = time.monotonic() + generator.expovariate(1 / BURST_SECONDS)
        while time.monotonic() < end:
            math.sqrt(2.0)


def machine() -> str:
    """The CPU model and how many of them."""
    from andrea_bench.hardware import cpu

    found = cpu.machine()
    return f"{found.get('model')}, {found.get('logical_cpus')} CPUs"


def rows(trial: str | None = None) -> list[dict[str, Any]]:
    """The stored rows, of one trial or of all."""
    if not RESULTS.exists():
        return []
    found = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return [row for row in found if trial in (None, row["trial"])]


def append(row: dict[str, Any]) -> None:
    """Store one row."""
    with open(RESULTS, "a") as file:
        file.write(json.dumps(row) + "\n")


def replay_gates(gates: int = 2000) -> None:
    """The same rule on pairs resampled from the A/A gates stored so far."""
    from andrea_bench.verdicts import Policy
    from andrea_bench.verdicts.replay import replay

    noise: dict[tuple[str, int], list[float]] = {}
    for row in rows():
        for cell in row["cells"] if row["trial"].startswith("A/A") else ():
            logs = [math.log(h / b) for b, h in zip(cell["base_us"], cell["head_us"], strict=True)]
            noise.setdefault((cell["kernel"], cell["seq_len"]), []).extend(logs)
    if not noise:
        raise SystemExit("no A/A gates are stored to replay")
    pairs = max(row["pairs"] for row in rows() if row["trial"].startswith("A/A"))
    for slowdown in (0.0, 0.05):
        found = replay(list(noise.values()), Policy(max_slowdown=0.01), gates=gates, max_pairs=pairs, slowdown=slowdown)
        append(
            {
                "trial": f"replay {100 * slowdown:g}%",
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "machine": machine(),
                "verdict": None,
                "gates": gates,
                "pairs": pairs,
                "counts": found,
                "cells": [],
            }
        )


def print_table() -> None:
    """What there is, beside the targets, as Markdown."""
    print("| trial | allowance | gates | slower | same | inconclusive | median s | target (of 40) |")
    print("|---|---|---|---|---|---|---|---|")
    for trial in TRIALS:
        found = rows(trial.name)
        if found:
            counts = {
                verdict: sum(row["verdict"] == verdict for row in found)
                for verdict in ("slower", "same", "inconclusive")
            }
            seconds = sorted(row["seconds"] for row in found)[len(found) // 2]
            told = " | ".join(str(counts[verdict]) for verdict in counts)
            print(f"| {trial.name} | {trial.allowance} | {len(found)} | {told} | {seconds:.0f} | {trial.target} |")
    for slowdown, target in (("0", "slower at most 1 %"), ("5", "slower at least 95 %")):
        for row in rows(f"replay {slowdown}%")[-1:]:
            counts = row["counts"]
            told = " | ".join(str(counts.get(verdict, 0)) for verdict in ("slower", "same", "inconclusive"))
            print(f"| replay, {slowdown} % slower | 1% | {row['gates']} | {told} | - | {target} |")
    for found in sorted({(row["date"][:10], row["machine"]) for row in rows()}):
        print(f"\nMeasured {found[0]} on {found[1]}.")


if __name__ == "__main__":
    main()
