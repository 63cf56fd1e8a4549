"""One result file of asv (format 2): every combination of every benchmark, by the values of its parameters.

asv writes NaN and Infinity, which are no JSON: NaN is a combination that was skipped or not selected, null one
that failed. Lists of values run over the product of the parameters' values, and trailing nulls of a row are cut.
"""

import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from andrea_bench.errors import BadInput

FORMAT = 2  # asv.results.Results.api_version and asv.benchmarks.Benchmarks.api_version of asv 0.5 to 0.6.6
LISTED = "benchmarks.json"
MACHINE = "machine.json"
# What tells two machines apart; asv also stores the machine's name, which may change from day to day.
MACHINE_FIELDS = ("os", "arch", "cpu", "num_cpu", "ram")
# Lists of asv's columns, by the field of Point that each goes into.
STATISTICS = {"stats_ci_99_a": "low", "stats_ci_99_b": "high", "stats_number": "number", "stats_repeat": "count"}

Status = Literal["ok", "skipped", "failed"]
Key = tuple[str, tuple[tuple[str, str], ...]]  # benchmark, its parameters by name


@dataclass(frozen=True)
class Point:
    """One combination of one benchmark at one commit.

    parameters: text of each value by name, as asv stores it (`'eager'` is eager). value: seconds for type
    `time`, else in `unit`; None unless status is ok. low, high: asv's 99 % interval of the median, None where
    it has none. samples: single calls, where asv kept them. version: of the benchmark; another one is
    another benchmark.
    """

    benchmark: str
    parameters: tuple[tuple[str, str], ...]
    type: str
    unit: str
    version: str
    status: Status
    value: float | None
    low: float | None = None
    high: float | None = None
    samples: tuple[float, ...] = ()
    number: int | None = None
    count: int | None = None
    higher_is_better: bool = False

    @property
    def key(self) -> Key:
        return self.benchmark, self.parameters

    def label(self) -> str:
        """`output.Output.time_call(einsum, 12, 64, float32)`."""
        values = ", ".join(value for _, value in self.parameters)
        return f"{self.benchmark}({values})" if values else self.benchmark


@dataclass(frozen=True)
class Results:
    """A result file: what was measured on one machine, in one environment, at one commit.

    date_ms: when the commit was made, since 1970. machine_facts: as asv asked them, with python and the
    versions of requirements. points: by key, in the order of the file."""

    file: Path
    machine: str
    machine_facts: dict[str, str]
    environment: str
    commit: str
    date_ms: int
    points: dict[Key, Point]


@dataclass(frozen=True)
class _Listed:
    """What benchmarks.json says of a benchmark."""

    type: str = ""
    unit: str = "unit"
    param_names: tuple[str, ...] = ()
    higher_is_better: bool = False


def read_results(file: Path) -> Results:
    """Read a result file, with names and units from the benchmarks.json of its folder. Raises BadInput."""
    document = read_json(file)
    version = document.get("version")
    if version != FORMAT:
        older = isinstance(version, int) and version < FORMAT
        cure = "`asv update` brings it to this format" if older else "update andrea-bench, or measure with asv 0.6"
        raise BadInput(f"{file}: is of asv's result format {version!r}; this andrea-bench reads {FORMAT}: {cure}")
    try:
        facts = {str(k): str(v) for k, v in document["params"].items()}
        results, columns = document["results"], list(document["result_columns"])
        head = {"commit": document["commit_hash"], "environment": document["env_name"], "date_ms": document["date"]}
        machine = facts["machine"]
        rows = results.items()
    except (KeyError, AttributeError, TypeError) as error:
        raise BadInput(f"{file}: is no result file of asv: {type(error).__name__} {error}") from None
    # asv takes the machine's name for a path: results of `node/7` lie two folders deep.
    within = Path(machine).parts
    above = file.absolute().parents
    if above[0].parts[-len(within) :] != within and (file.parent / MACHINE).is_file():
        raise BadInput(
            f"{file}: was measured on machine {machine}, but lies among the results of {file.parent.name}; "
            f"move it to the folder of {machine}"
        )
    listed = _listed(next((p / LISTED for p in above[1 : 1 + len(within)] if (p / LISTED).is_file()), None))
    points: dict[Key, Point] = {}
    for name, row in rows:
        for point in _points(file, name, row, columns, listed.get(name, _Listed())):
            points[point.key] = point
    return Results(file=file, machine=machine, machine_facts=facts, points=points, **head)


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object as Python's json reads it (asv writes NaN). Raises BadInput for a file that is cut off."""
    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise BadInput(f"{file}: can't be read: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"{file}: is no whole JSON ({error}); delete it and run asv for that commit again") from None
    if not isinstance(document, dict):
        raise BadInput(f"{file}: is a JSON {type(document).__name__}, not an object")
    return document


def _listed(file: Path | None) -> dict[str, _Listed]:
    """benchmarks.json: what the last run found. Without it, or where it lacks a benchmark, names are made up."""
    if file is None:
        return {}
    document = read_json(file)
    if document.get("version") != FORMAT:
        raise BadInput(f"{file}: is of asv's format {document.get('version')!r}; this andrea-bench reads {FORMAT}")
    return {
        name: _Listed(
            type=str(entry.get("type", "")),
            unit=str(entry.get("unit", "unit")),
            param_names=tuple(map(str, entry.get("param_names") or ())),
            higher_is_better=bool(entry.get("higher_is_better", False)),
        )
        for name, entry in document.items()
        if isinstance(entry, dict)
    }


def _points(file: Path, name: str, row: Any, columns: list[str], listed: _Listed) -> list[Point]:
    """The combinations of one benchmark."""
    if not isinstance(row, list) or len(row) > len(columns):
        raise BadInput(f"{file}: {name} is no row of {len(columns)} columns")
    cells = dict(zip(columns, row, strict=False))
    values = cells.get("params") or []
    names = listed.param_names
    if len(names) != len(values):
        # An older commit had other parameters than the ones that are listed now.
        names = tuple(f"param{i + 1}" for i in range(len(values)))
    combinations = list(itertools.product(*values))
    result = cells.get("result")
    result = [None] * len(combinations) if result is None else result
    lists = {field: cells.get(column) for column, field in STATISTICS.items()} | {"samples": cells.get("samples")}
    for what, column in {"result": result, **lists}.items():
        if column is not None and (not isinstance(column, list) or len(column) != len(combinations)):
            raise BadInput(
                f"{file}: {name} has {len(combinations)} combinations, but its {what} has not as many values"
            )
    made = []
    for i, combination in enumerate(combinations):
        status, value = _value(result[i])
        one = {field: column[i] if column is not None else None for field, column in lists.items()}
        made.append(
            Point(
                benchmark=name,
                parameters=tuple((n, plain(text)) for n, text in zip(names, combination, strict=True)),
                type=listed.type or ("time" if lists["count"] else "track"),
                unit=listed.unit,
                version=str(cells.get("version")),
                status=status,
                value=value,
                low=_finite(one["low"]),
                high=_finite(one["high"]),
                samples=tuple(one["samples"] or ()),
                number=one["number"],
                count=one["count"],
                higher_is_better=listed.higher_is_better,
            )
        )
    return made


def _value(stored: Any) -> tuple[Status, float | None]:
    """Status and value of a stored one. Values that are no number (a track_* may return text) have none."""
    if stored is None:
        return "failed", None
    if isinstance(stored, bool | int | float):
        number = float(stored)
        return ("skipped", None) if math.isnan(number) else ("ok", number)
    return "skipped", None


def _finite(stored: Any) -> float | None:
    return float(stored) if isinstance(stored, int | float) and math.isfinite(stored) else None


def plain(text: Any) -> str:
    """The text of a parameter's value without the quotes that asv's repr put around it."""
    shown = str(text)
    return shown[1:-1] if len(shown) > 1 and shown[0] == shown[-1] and shown[0] in "'\"" else shown
