"""Calibration: what this machine can do and how noisy it is, kept in one file for gates and reports."""

import os
from pathlib import Path
from typing import Any

import msgspec

from andrea_bench.environment import differences
from andrea_bench.errors import BadInput
from andrea_bench.record import SCHEMA_VERSION

MOST_DISTURBED = 0.1  # share of the turns of a trial that is not worth a word
GATE_SECONDS = 120.0  # the default budget of ab: noise is judged for as many pairs as that allows


class Ceilings(msgspec.Struct, kw_only=True):
    """The best that this machine reached. matmul_tflops by dtype; None (absent) where a dtype can't run."""

    threads: int
    matmul_tflops: dict[str, float] = {}
    copy_gb_per_s: float | None = None


class CellNoise(msgspec.Struct, kw_only=True):
    """One cell, measured in pairs of processes of the same code: the log ratio of each pair."""

    cell_id: str
    kernel: str
    problem: str
    median_us: float
    log_ratios: list[float]


class SuiteNoise(msgspec.Struct, kw_only=True):
    """A/A of one suite. noise: typical (median absolute) log ratio of a pair as a standard deviation.

    false_alarm_rate: share of replayed A/A gates that said slower, by allowance. smallest_allowance: the
    smallest of those tried within which A/A gates of gate_pairs pairs (what ab's default budget allows) end as
    `same` nine times in ten; None where none does. Neither is told from too few pairs: then false_alarm_rate is
    empty. pairs, pair_seconds: that were measured, and what each took. disturbed: share of their turns in which
    the machine had other things to do. quantile: of the samples of a process, that is its time (`policy.quantile` of a
    verdict of ab). sampling: how these were taken (measure/task.py). Defaults are of calibrations that don't say."""

    pairs: int
    gate_pairs: int
    pair_seconds: float
    noise: float
    false_alarm_rate: dict[str, float]
    smallest_allowance: float | None
    cells: list[CellNoise]
    disturbed: float = 0.0
    quantile: float = 0.5
    sampling: int = 1


class Calibration(msgspec.Struct, kw_only=True):
    """What `calibrate` found on one machine."""

    schema_version: int = SCHEMA_VERSION
    measured_at: str
    device: str
    environment: dict[str, Any]
    ceilings: Ceilings
    suites: dict[str, SuiteNoise] = {}


def default_file() -> Path:
    """Where calibrations are kept: in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "andrea-bench" / "calibration.json"


def read_calibration(file: Path | None = None) -> Calibration | None:
    """The stored calibration; None where there is none. Raises BadInput of a file that can't be read."""
    file = file or default_file()
    if not file.is_file():
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=Calibration)
    except msgspec.DecodeError as error:
        raise BadInput(f"{file}: is no calibration ({error}); `andrea-bench calibrate` writes a new one") from None


def too_tight(
    calibration: Calibration | None,
    environment: dict[str, Any],
    suites: set[str],
    *,
    max_slowdown: float,
    quantile: float,
    sampling: int,
) -> list[str]:
    """A line for each suite whose noise on this machine is beyond the allowance of a gate. quantile, sampling: what ab
    takes of a process' samples, and how these are taken; what another one varied by tells nothing."""
    if calibration is None or differences(calibration.environment, environment):
        return []
    lines = []
    for name in sorted(suites & calibration.suites.keys()):
        noise = calibration.suites[name]
        least = noise.smallest_allowance
        if least is not None and max_slowdown >= least:
            continue
        if not noise.false_alarm_rate:
            continue
        if (noise.quantile, noise.sampling) != (quantile, sampling):
            lines.append(
                f"suite {name}: this machine's calibration ({calibration.measured_at[:10]}) is of an older version "
                f"and tells nothing of ab as it is; `andrea-bench calibrate {name}` again"
            )
            continue
        can = f"{100 * least:g} % can be" if least is not None else "no allowance tried could"
        measured = f"{100 * noise.noise:.2g} % between two processes on {calibration.measured_at[:10]}"
        lines.append(
            f"an allowance of {100 * max_slowdown:g} % can't be met in suite {name} on this machine: "
            f"by its calibration ({measured}) {can}, in {GATE_SECONDS:g} s of ab"
        )
    return lines
