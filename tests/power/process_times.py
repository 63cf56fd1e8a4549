"""Times of processes of real kernels, recorded in pairs as `ab` takes them, and the rule replayed on them."""

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from injection import ROOT, paired_records

from andrea_bench.revisions import Revision
from andrea_bench.verdicts import Policy
from andrea_bench.verdicts.judge import block_times
from andrea_bench.verdicts.policy import PAIRED_QUANTILE
from andrea_bench.verdicts.replay import log_ratios, replay

TIMES = ROOT / "tests" / "verdicts" / "process_times.json"
ALLOWANCE = 0.01
BUDGET_SECONDS = 120.0


def record_times(file: Path, pairs: int, conditions: str, machine: str) -> None:
    """Measure the code at hand against itself, and store each cell's time in each process."""
    here = [Revision(side, "working tree", None, ROOT) for side in ("base", "head")]
    load_before, started = os.getloadavg()[0], time.monotonic()
    records = paired_records(here[0], here[1], pairs, seed=7000)
    seconds = time.monotonic() - started
    document = {
        "what": "microseconds of each process of the same code, in pairs as ab takes them",
        "command": "python tests/power/gate_power.py --record-times FILE",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "conditions": conditions,
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
        "pair_seconds": round(seconds / pairs, 2),
        # The rest is the start of processes, the check of kernels, and the parts of turns that are not timed.
        "sampled_share": round(sum(sum(record.samples_us) for both in records for record in both) / 1e6 / seconds, 3),
        "cells": [
            {"kernel": base.kernel, "seq_len": base.problem.seq_len}
            | {f"{side}_us": [round(us, 2) for us in block_times(record, side, PAIRED_QUANTILE).values()]
               for side, record in (("base", base), ("head", head))}
            for base, head in records
        ],
    }  # fmt: skip
    file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def replayed(file: Path, slowdown: float, gates: int) -> dict[str, Any]:
    """Verdicts of so many gates of as many pairs as the budget allows, on resampled pairs of a stored file."""
    stored = json.loads(file.read_text())
    pairs = int(BUDGET_SECONDS / stored["pair_seconds"])
    noise = [log_ratios(cell["base_us"], cell["head_us"]) for cell in stored["cells"]]
    found = replay(noise, Policy(max_slowdown=ALLOWANCE), gates=gates, max_pairs=pairs, slowdown=slowdown)
    return {
        "allowance": f"{100 * ALLOWANCE:g}%", "gates": gates, "pairs": pairs, "counts": dict(found),
        "times": {name: stored[name] for name in ("date", "machine", "conditions", "pair_seconds")},
    }  # fmt: skip
