"""Result folders as asv 0.6.6 writes them, made by hand for tests."""

import json
from pathlib import Path
from typing import Any

COLUMNS = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
           "stats_q_75", "stats_number", "stats_repeat", "samples", "profile"]  # fmt: skip
FACTS = {"machine": "node", "os": "Linux 6.1", "arch": "x86_64", "cpu": "EPYC", "num_cpu": "2", "ram": "25276510208",
         "python": "3.11", "torch": "2.13.0"}  # fmt: skip
TIME, COUNTED = "output.Output.time_call", "structure.Structure.track_spilled_bytes"


def commit(number: int) -> str:
    """A hash of 40 digits that begins with `number`."""
    return f"{number:08x}" + "0" * 32


def times(values: list[Any], params: list[list[str]], *, samples: list[Any] | None = None, spread: float = 0.01,
          version: str = "1") -> list[Any]:  # fmt: skip
    """A row of a time_* benchmark; the interval is +- spread about the value."""
    known = [isinstance(v, int | float) and v == v for v in values]
    scaled = [[v * f if k else None for v, k in zip(values, known, strict=True)] for f in (1 - spread, 1 + spread)]
    count = [10 if k else None for k in known]
    return [values, params, version, 1, 2.0, *scaled, *scaled, count, count, *([samples] if samples else [])]


def write(folder: Path, number: int, results: dict[str, list[Any]], *, machine: str = "node", env: str = "venv-py3.11",
          version: int = 2, facts: dict[str, str] | None = None, hash40: str | None = None) -> Path:  # fmt: skip
    """Write the results of commit(number), with machine.json and benchmarks.json beside; returns the file."""
    place = folder / machine
    place.mkdir(parents=True, exist_ok=True)
    known = {**FACTS, "machine": machine, **(facts or {})}
    (place / "machine.json").write_text(json.dumps({**known, "version": 1}))
    listed = folder / "benchmarks.json"
    listed.write_text(json.dumps({
        TIME: {"type": "time", "unit": "seconds", "param_names": ["kernel", "head_dim"]},
        COUNTED: {"type": "track", "unit": "bytes", "param_names": ["kernel"]},
        "a.track_score": {"type": "track", "unit": "points", "param_names": [], "higher_is_better": True},
        "a.track_ratio": {"type": "track", "unit": "times", "param_names": []},
        "version": 2,
    }))  # fmt: skip
    whole = hash40 or commit(number)
    file = place / f"{whole[:8]}-{env}.json"
    document = {"commit_hash": whole, "env_name": env, "date": 1_700_000_000_000 + number * 60_000, "params": known,
                "python": "3.11", "requirements": {"torch": "2.13.0"}, "env_vars": {}, "result_columns": COLUMNS,
                "results": results, "durations": {}, "version": version}  # fmt: skip
    file.write_text(json.dumps(document))  # as asv does: NaN and Infinity bare
    return file
