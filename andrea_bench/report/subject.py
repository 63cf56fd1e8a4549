"""From stored Runs to the subject of a report."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from andrea_bench.report.answers import answers
from andrea_bench.report.content import MeasuredRun
from andrea_bench.report.rows import group_rows
from andrea_bench.store import StoredRun, read_run


def read_runs(paths: Sequence[Path]) -> list[MeasuredRun]:
    """The Runs with their rows and answers, labelled apart. Raises BadInput for what can't be read."""
    stored = [read_run(path) for path in paths]
    names = [_name(run) for run in stored]
    often = Counter(names)
    measured = []
    for at, (run, name) in enumerate(zip(stored, names, strict=True), 1):
        label = name if often[name] == 1 else f"{name} (Run {at}, {run.folder.name})"
        groups = group_rows(run.records)
        measured.append(MeasuredRun(label, run.head, groups, answers(groups)))
    return measured


def _name(run: StoredRun) -> str:
    """Machine and time, as in `tower, cuda: NVIDIA GeForce RTX 4090, 2026-01-31 12:00`."""
    environment = run.head.environment
    gpu = (environment.get("gpu") or {}).get("name")
    machine = gpu or (environment.get("cpu") or {}).get("model")
    device = f"{environment.get('device', 'device not known')}"
    parts = [str(environment.get("host", "host not known")), f"{device}: {machine}" if machine else device]
    return ", ".join([*parts, run.head.started_at[:16].replace("T", " ")])
