"""From stored Runs to the subject of a report."""

import codecs
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from andrea_bench.errors import BadInput
from andrea_bench.hardware import match_device_name
from andrea_bench.problem import DTYPES
from andrea_bench.record import RunHead
from andrea_bench.report.answers import answers
from andrea_bench.report.content import Ceiling, MeasuredRun
from andrea_bench.report.rows import group_rows
from andrea_bench.store import StoredRun, read_whole_run


def read_runs(paths: Sequence[Path], measured_ceiling: Callable[[RunHead], Ceiling | None]) -> list[MeasuredRun]:
    """The Runs with their rows and answers, labelled apart. Raises BadInput for what can't be read.

    measured_ceiling: what a calibration of the Run's machine found, or None."""
    stored = [read_whole_run(path) for path in paths]
    names = [_name(run) for run in stored]
    often = Counter(names)
    measured = []
    for at, (run, name) in enumerate(zip(stored, names, strict=True), 1):
        label = name if often[name] == 1 else f"{name} (Run {at}, {run.folder.name})"
        label = label.encode(errors="backslashreplace").decode()  # of a folder's name that is no UTF-8
        groups = group_rows(run.records)
        ceilings = [c for c in (measured_ceiling(run.head), _published_ceiling(run.head)) if c is not None]
        measured.append(MeasuredRun(label, run.head, groups, answers(groups, run.head.environment), ceilings))
    return measured


def read_claims(path: Path) -> list[dict[str, Any]]:
    """The claims that `claims --json` wrote. Raises BadInput naming the file."""
    try:
        return msgspec.json.decode(path.read_bytes().removeprefix(codecs.BOM_UTF8), type=ClaimsDocument).claims
    except OSError as error:
        raise BadInput(f"{path}: can't be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: holds no claims ({error}); `andrea-bench claims --json` writes them") from error


class ClaimsDocument(msgspec.Struct):
    """What is read of a file of claims."""

    claims: list[dict[str, Any]]


def _published_ceiling(head: RunHead) -> Ceiling | None:
    """The catalogue's, of the GPU that was measured."""
    name = (head.environment.get("gpu") or {}).get("name")
    gpu = match_device_name(name) if name else None
    if gpu is None:
        return None
    peaks = {str(dtype): peak for dtype in DTYPES if (peak := gpu.peak_tflops(dtype)) is not None}
    return Ceiling(f"the catalogue ({gpu.name})", peaks, gpu.memory_bandwidth_gb_per_s)


def _name(run: StoredRun) -> str:
    """Machine and time, as in `tower, cuda: NVIDIA GeForce RTX 4090, 2026-01-31 12:00`."""
    environment = run.head.environment
    gpu = (environment.get("gpu") or {}).get("name")
    machine = gpu or (environment.get("cpu") or {}).get("model")
    device = f"{environment.get('device', 'device not known')}"
    parts = [str(environment.get("host", "host not known")), f"{device}: {machine}" if machine else device]
    return ", ".join([*parts, run.head.started_at[:16].replace("T", " ")])
