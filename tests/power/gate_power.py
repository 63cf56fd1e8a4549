"""How often the gate `ab` cries wolf, and how often it sleeps, measured with real kernels on this machine.

    python tests/power/gate_power.py RESULTS --gates 20            # so many gates in each row, resuming what there is
    python tests/power/gate_power.py RESULTS --row slow-5% --gates 40
    python tests/power/gate_power.py RESULTS --replay              # the rule on resampled pairs of process times
    python tests/power/gate_power.py RESULTS --table               # only show
    python tests/power/gate_power.py --record-times FILE           # process times for --replay and `make test`

RESULTS is a file of JSON lines, one a gate or a calibration of extra work, each with date and machine. Before the
gates of a row with a slowdown, the extra work is found and checked (injection.py); the row is refused where it can't
be shown to be what it shall be. Leave the machine alone meanwhile; `bursts` makes its own load.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from injection import (
    HEAD_DIM,
    KERNELS,
    N_HEAD,
    SEQ_LENS,
    SLOWED,
    START,
    SUITE,
    Depths,
    Injected,
    NotReached,
    TrialRepository,
)
from injection import calibrate as calibrate_injection
from process_times import TIMES, record_times, replayed
from table import print_table

BUDGET = "120s"
BURST_SECONDS = 4.0  # mean length of a load burst; pauses are twice as long, so that a third of the time is loaded
CELLS = [SUITE, "-a", f"seq_len={','.join(map(str, SEQ_LENS))}", "-a", f"n_head={N_HEAD}", "-a",
         f"head_dim={HEAD_DIM}", "--kernel", ",".join(KERNELS)]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One row of the table. allowance: of its gates. slowdown: extra work put into one kernel."""

    name: str
    allowance: str
    slowdown: float = 0.0
    load: bool = False


ROWS = (
    Row("aa-3%", "3%"),
    Row("aa-1%", "1%"),
    Row("slow-5%", "1%", slowdown=0.05),
    Row("slow-3%", "1%", slowdown=0.03),
    Row("bursts", "1%", load=True),
)


class Results:
    """The file of stored rows."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def rows(self, name: str | None = None, kind: str | None = None) -> list[dict[str, Any]]:
        """What is stored, of one row and kind or of all. A line cut off by an interruption is left out."""
        found = []
        for line in self._file.read_text().splitlines() if self._file.exists() else ():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                print(f"left out a broken line of {self._file}", file=sys.stderr)
        return [row for row in found if name in (None, row["row"]) and kind in (None, row["kind"])]

    def append(self, name: str, kind: str, **fields: Any) -> dict[str, Any]:
        """Store a row with date and machine."""
        row = {
            "row": name, "kind": kind, "date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(),
            **fields,
        }  # fmt: skip
        with open(self._file, "a") as file:
            file.write(json.dumps(row) + "\n")
        return row


def main() -> None:
    """Do what is asked for, then show the table."""
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that temporary folders go
    if options.record_times:
        record_times(options.record_times, options.pairs or 60, options.conditions, machine())
    if not options.results:
        return
    results = Results(options.results)
    chosen = [row for row in ROWS if not options.row or row.name in options.row]
    if options.gates:
        with tempfile.TemporaryDirectory(prefix="andrea-bench-power-") as folder:
            repository = TrialRepository(Path(folder))
            for row in chosen:
                measure_row(repository, row, options.gates, options.pairs or 30, results, options.start)
    if options.replay:
        for slowdown in (0.0, 0.05):
            found = replayed(options.times, slowdown, options.replayed_gates)
            results.append(f"replay-{100 * slowdown:g}%", "replay", **found)
    print_table(results.rows())


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", metavar="RESULTS")
    parser.add_argument("--gates", type=int, default=0, help="gates of each row that there shall be in the end")
    parser.add_argument("--row", choices=[row.name for row in ROWS], action="append")
    parser.add_argument("--pairs", type=int, help="of a check of extra work (30), or of --record-times (60)")
    parser.add_argument(
        "--start",
        type=depths,
        metavar="SEQ_LEN=DEPTH,...",
        help="where checks of extra work begin, instead of the depths of the last one stored",
    )
    parser.add_argument("--replay", action="store_true", help="replay the rule on the pairs of --times")
    parser.add_argument("--replayed-gates", type=int, default=2000)
    parser.add_argument("--times", type=Path, default=TIMES, metavar="FILE")
    parser.add_argument("--record-times", type=Path, metavar="FILE", help="measure process times, store them")
    parser.add_argument("--conditions", default="nothing else at work", help="said of --record-times")
    parser.add_argument("--table", action="store_true", help="only show what is stored")
    options = parser.parse_args()
    if not options.results and not options.record_times:
        parser.error("name a RESULTS file")
    if options.table and (options.gates or options.replay):
        parser.error("--table only shows what is stored")
    return options


def depths(text: str) -> dict[int, int]:
    """`64=616,128=1352` as a depth for each seq_len of the gates."""
    found = {int(name): int(value) for name, value in (part.split("=") for part in text.split(","))}
    if set(found) != set(SEQ_LENS):
        raise argparse.ArgumentTypeError(f"name a depth for each of {SEQ_LENS}")
    return found


def measure_row(
    repository: TrialRepository, row: Row, gates: int, check_pairs: int, results: Results, start: Depths | None = None
) -> None:
    """Gates of a row until there are so many; none where its slowdown can't be shown."""
    missing = range(len(results.rows(row.name, "gate")), gates)
    if not missing:
        return
    head, injected = START, []
    if row.slowdown:
        try:
            injected = calibrated(repository, row, check_pairs, results, start)
        except NotReached as error:
            print(f"{row.name}: refused: {error}", file=sys.stderr)
            return
        head = repository.slowed({one.seq_len: one.depth for one in injected})
    for number in missing:
        stored = results.append(
            row.name,
            "gate",
            **one_gate(repository, row, head, number),
            injected=[asdict(one) for one in injected],
            commit=repository.commit,
        )
        said = f"{stored['verdict']}, {stored['pairs']} pairs, {stored['seconds']:.0f} s"
        print(f"{row.name} gate {number + 1} of {gates}: {said}", flush=True)


def calibrated(
    repository: TrialRepository, row: Row, check_pairs: int, results: Results, start: Depths | None
) -> list[Injected]:
    """The extra work of a row, checked anew; checks begin at `start`, or at the depths that an earlier one found."""
    earlier = results.rows(row.name, "calibration")
    if start is None and earlier:
        start = {one["seq_len"]: one["depth"] for one in earlier[-1]["injected"]}
    started = time.monotonic()

    def report(text: str) -> None:
        print(f"{row.name}: {text}", flush=True)

    injected = calibrate_injection(repository, row.slowdown, start, check_pairs, report)
    results.append(
        row.name, "calibration", aim=row.slowdown, injected=[asdict(one) for one in injected],
        seconds=time.monotonic() - started, commit=repository.commit,
    )  # fmt: skip
    return injected


def one_gate(repository: TrialRepository, row: Row, head: str, number: int) -> dict[str, Any]:
    """One gate by the command line, as CI would run it."""
    command = [sys.executable, "-m", "andrea_bench", "ab", *CELLS, "--base", START, "--head", head, "--json",
               "--max-slowdown", row.allowance, "--budget", BUDGET, "--seed", str(1000 + number)]  # fmt: skip
    load_before = os.getloadavg()[0]
    started = time.monotonic()
    with bursts(number) if row.load else nullcontext():
        # Should ab be killed with this script, its worktrees go with the trial's folder.
        done = subprocess.run(
            command, cwd=repository.folder, env={**os.environ, "TMPDIR": str(repository.folder.parent)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if not done.stdout:
        raise SystemExit(f"ab failed: {done.stderr}")
    document = json.loads(done.stdout)
    return {
        "allowance": row.allowance,
        "verdict": document["verdict"],
        "exit_code": done.returncode,
        "seconds": round(time.monotonic() - started, 1),
        "pairs": document["looks"][-1]["pairs"],
        "load_before": load_before,
        "cells": [
            {"seq_len": cell["problem"]["seq_len"], "slowed": bool(row.slowdown) and cell["kernel"] == SLOWED}
            | {name: cell[name] for name in ("kernel", "verdict", "ratio", "low", "high", "blocks_base")}
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


if __name__ == "__main__":
    main()
