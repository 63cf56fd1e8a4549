"""Runs made up for verdicts: process medians with known ratios and noise."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from andrea_bench.problem import Problem
from andrea_bench.record import Code, Record, RunHead, cell_id
from andrea_bench.store import read_run
from andrea_bench.verdicts import Document, Policy, judge

WriteRun = Callable[..., Path]
SUITE, OP = "head_width", "attention"
ENVIRONMENT = {"device": "cpu", "cpu": {"model": "Test CPU", "logical_cpus": 2}, "libraries": {"torch": "2.13.0"}}

BASE = [100.0, 101.0, 99.5, 100.4, 99.8, 100.9, 100.2, 99.1]  # process medians


def times(factor: float) -> list[float]:
    """BASE times a factor, each value moved a little: another measurement."""
    return [factor * us * (1 + 0.001 * ((7 * i) % 5 - 2)) for i, us in enumerate(BASE)]


def judged(write_run: WriteRun, base: list[Record], head: list[Record], policy: Policy | None = None) -> Document:
    """The verdict on two Runs of these Records."""
    return judge(read_run(write_run("base", base)), read_run(write_run("head", head)), policy or Policy())


def make_record(kernel: str = "sdpa_flash", medians_us: list[float] | None = None, **changes: Any) -> Record:
    """A Record whose blocks have these medians (three equal samples each)."""
    problem = changes.pop("problem", Problem(seq_len=64, n_head=4, head_dim=16))
    medians_us = [] if medians_us is None else medians_us
    fields: dict[str, Any] = {
        "cell_id": cell_id(SUITE, OP, kernel, problem),
        "suite": SUITE,
        "op": OP,
        "kernel": kernel,
        "problem": problem,
        "device": "cpu",
        "status": "ok" if medians_us else "unsupported",
        "reason": None if medians_us else "needs a GPU",
        "samples_us": [us for us in medians_us for _ in range(3)],
        "order": list(range(3 * len(medians_us))),
        "block": [block for block in range(len(medians_us)) for _ in range(3)],
        "round": [round_ for _ in medians_us for round_ in range(3)],
        "timing_mode": "host_wall" if medians_us else None,
        "cache": "warm" if medians_us else None,
        "flops": problem.flops(OP),
        "min_bytes": problem.min_bytes(OP),
        "started_at": "2026-11-29T12:00:00.000+00:00",
        "code": Code(kernel_source_hash="aaaa"),
    }
    return Record(**{**fields, **changes})


def noisy(level_us: float, noise: float, blocks: int, generator: random.Random) -> list[float]:
    """Process medians around a level with a log-normal spread."""
    return [level_us * generator.lognormvariate(0, noise) for _ in range(blocks)]


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Path]:
    """Writes a Run's folder from Records (or lines of JSON) and returns it."""

    def write(name: str, records: list[Record | str], environment: Any = ENVIRONMENT, **head: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        fields = {
            "complete": True,
            "started_at": "2026-11-29T12:00:00.000+00:00",
            "protocol": {"timing_mode": "host_wall", "cache": "warm", "threads": 1},
            "environment": environment,
            **head,
        }
        (folder / "run.json").write_bytes(msgspec.json.encode(RunHead(**fields)))
        lines = [r if isinstance(r, str) else msgspec.json.encode(r).decode() for r in records]
        (folder / "records.jsonl").write_text("".join(line + "\n" for line in lines))
        return folder

    return write
