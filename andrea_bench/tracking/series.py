"""A benchmark's series over commits, and where its level changed."""

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from andrea_bench.errors import BadInput, EnvironmentUnfit
from andrea_bench.statistics import change_from_best
from andrea_bench.tracking.folder import machine_folder, order, result_files
from andrea_bench.tracking.results import MACHINE_FIELDS, Point, Results, read_results

BARS = "▁▂▃▄▅▆▇█"
GAP = "·"
# asv publish's own threshold: a smaller step is no change of level.
LEAST_STEP = 0.05


@dataclass(frozen=True)
class Step:
    """A change of level: from the commit before to the first one at the new level. change: 0.3 is 30 % more."""

    before: str
    commit: str
    old: float
    new: float

    @property
    def change(self) -> float | None:
        return self.new / self.old - 1 if self.old else None


@dataclass(frozen=True)
class Series:
    """One combination of one benchmark: a point for each commit of the history, None where it was not run.

    Another version of the benchmark, or other parameters, is another Series: never joined."""

    label: str
    type: str
    unit: str
    version: str
    commits: tuple[str, ...]
    points: tuple[Point | None, ...]
    steps: tuple[Step, ...] = ()

    def _known(self) -> Point:
        return next(point for point in reversed(self.points) if point is not None)

    def benchmark(self) -> str:
        return self._known().benchmark

    def parameters(self) -> dict[str, str]:
        return dict(self._known().parameters)

    def values(self) -> list[float | None]:
        return [point.value if point else None for point in self.points]

    def latest(self) -> float | None:
        return next((value for value in reversed(self.values()) if value is not None), None)

    def from_best(self) -> float | None:
        """Change of the latest value from the best earlier level (0.5 is 50 % more), by which a slowdown in many
        small steps, or half recovered, is still seen. None where the latest commit has no value, for fewer
        than three values, and where more is better."""
        values = self.values()
        if values[-1] is None or any(point and point.higher_is_better for point in self.points):
            return None
        return change_from_best([value for value in values if value is not None])

    def changed(self) -> bool:
        """Whether its level changed, or its latest value lies above the best level by LEAST_STEP."""
        return bool(self.steps) or (self.from_best() or 0) >= LEAST_STEP

    def state(self, commits: Sequence[str]) -> str:
        """What to know of the latest commit: `gone` where it lacks the series, `failed` there, `no value` (asv
        writes the same for what was skipped and what -b left out), `new` where no other commit has it."""
        latest = self.points[-1]
        if latest is None:
            last = max(i for i, point in enumerate(self.points) if point is not None)
            return f"gone after {commits[last][:8]}"
        if latest.status != "ok":
            return f"{'failed' if latest.status == 'failed' else 'no value'} at {commits[-1][:8]}"
        return "new" if len(commits) > 1 and not any(self.points[:-1]) else ""


@dataclass(frozen=True)
class History:
    """All series of one machine and environment. commits: in the order of history. notes: for the reader."""

    machine: str
    environment: str
    commits: tuple[str, ...]
    dates_ms: tuple[int, ...]
    series: tuple[Series, ...]
    notes: list[str] = field(default_factory=list)


def read_history(
    folder: Path, *, benchmark: str | None = None, machine: str | None = None, environment: str | None = None
) -> History:
    """The series of the benchmarks that the regular expression `benchmark` fits (as asv's -b), or of all.
    Raises BadInput for a folder without results, mixed machines, and a name that fits none;
    EnvironmentUnfit without asv."""
    if find_spec("asv") is None:
        raise EnvironmentUnfit(
            "history: changes of level are found by asv's step detection, and asv is not installed here; "
            "`pip install 'andrea-bench[asv]'` brings it"
        )
    own = machine_folder(folder, machine)
    results = [read_results(file) for file in result_files(own)]
    if not results:
        raise BadInput(f"{own}: holds no results yet; `asv run` makes them")
    results, others = _of_one_environment(own, results, environment)
    _refuse_mixed_machines(results)
    by_commit = {one.commit: one for one in results}
    commits, unordered = order([(one.commit, one.date_ms) for one in results])
    ordered = [by_commit[commit] for commit in commits]
    keys: dict[tuple[object, ...], list[Point | None]] = defaultdict(lambda: [None] * len(commits))
    for i, one in enumerate(ordered):
        for point in one.points.values():
            keys[(*point.key, point.version)][i] = point
    made = [_series(commits, points) for points in keys.values() if _fits(points, benchmark)]
    if benchmark is not None and not made:
        known = sorted({point.benchmark for one in results for point in one.points.values()})
        raise BadInput(f"no benchmark fits {benchmark!r}; there are {', '.join(known)}")
    shown = [one for one in made if any(value is not None for value in one.values())]
    return History(
        machine=ordered[-1].machine,
        environment=ordered[-1].environment,
        commits=tuple(commits),
        dates_ms=tuple(one.date_ms for one in ordered),
        series=tuple(shown),
        notes=others + ([unordered] if unordered else []) + _systems(ordered) + _notes(made, shown),
    )


def _of_one_environment(folder: Path, results: list[Results], name: str | None) -> tuple[list[Results], list[str]]:
    """The results of the environment of that name, or of the one that the newest commit was measured in, and a
    note of the others."""
    found = sorted({one.environment for one in results})
    if name is not None and name not in found:
        raise BadInput(f"{folder}: has no environment {name!r}; it has {', '.join(found)}")
    chosen = name or max(results, key=lambda one: (one.date_ms, one.environment)).environment
    others = [one for one in found if one != chosen]
    note = f"{chosen} only; `history --environment` shows {' or '.join(others)}"
    return [one for one in results if one.environment == chosen], [note] if others and name is None else []


def _refuse_mixed_machines(results: list[Results]) -> None:
    """Two machines under one name can't be one series. An update of the operating system is no other machine."""
    for name in (one for one in MACHINE_FIELDS if one != "os"):
        seen: dict[str, Results] = {}
        for one in results:
            # Memory differs by a few pages from one boot to the next.
            fact = one.machine_facts.get(name, "")
            seen.setdefault(fact if name != "ram" else fact[:2] + str(len(fact)), one)
        if len(seen) > 1:
            (first, a), (second, b) = list(seen.items())[:2]
            raise BadInput(
                f"{a.file} and {b.file} are from different machines ({name}: {first} and {second}); "
                f"give one another name with `asv machine`, and move its results there"
            )


def _fits(points: list[Point | None], pattern: str | None) -> bool:
    if pattern is None:
        return True
    try:
        return any(point is not None and re.search(pattern, point.label()) for point in points)
    except re.error as error:
        raise BadInput(f"{pattern!r} is no regular expression: {error}") from None


def _series(commits: list[str], points: list[Point | None]) -> Series:
    known = next(point for point in reversed(points) if point is not None)
    made = Series(known.label(), known.type, known.unit, known.version, tuple(commits), tuple(points))
    return Series(**{**made.__dict__, "steps": tuple(find_steps(made))})


# Why not E-divisive: apache-otava 0.8, its kept implementation, requires numpy 2.2 and scipy below 1.17 (older than
# ours) and clients of BigQuery and Slack; signal-processing-algorithms was last released in 2024.
def find_steps(series: Series) -> list[Step]:
    """Changes of level by asv's step detection (a piecewise constant fit in L1 that chooses its number of
    steps itself), which `asv publish` uses too; of at least LEAST_STEP. To or from a level of one commit, a time
    must also lie outside the other's interval. Deterministic values change whenever they do."""
    values = series.values()
    at = [i for i, value in enumerate(values) if value is not None]
    if len(at) < 2:
        return []
    counted = _counted(series)
    if counted:
        pieces = [(i, values[i]) for i in at]
    else:
        from asv.step_detect import detect_steps

        pieces = [(left, value) for left, _, value, _, _ in detect_steps(values)]
    ends = [left for left, _ in pieces[1:]] + [len(values)]
    lengths = [sum(left <= i < end for i in at) for (left, _), end in zip(pieces, ends, strict=True)]
    found = []
    for ((_, old), (left, new)), alone in zip(itertools.pairwise(pieces), itertools.pairwise(lengths), strict=True):
        assert old is not None
        assert new is not None
        before = max(i for i in at if i < left)
        if old == new or not (counted or old == 0 or abs(new / old - 1) >= LEAST_STEP):
            continue
        if min(alone) > 1 or _apart(series.points[before], series.points[left]):
            found.append(Step(series.commits[before], series.commits[left], old, new))
    return found


def _apart(before: Point | None, after: Point | None) -> bool:
    """Whether asv's intervals of two commits don't meet; True where there is none, as for tracked values."""
    if not (before and after and before.low and before.high and after.low and after.high):
        return True
    return before.high < after.low or after.high < before.low


def _counted(series: Series) -> bool:
    """Whether a value is read from compiled code, so that any difference is a change."""
    return series.type == "track" and ".Structure." in series.label


def sparkline(values: Sequence[float | None]) -> str:
    """The series in one line of bars from the least to the greatest value; a dot where there is none."""
    known = [value for value in values if value is not None]
    if not known:
        return GAP * len(values)
    low, span = min(known), max(known) - min(known)
    return "".join(
        GAP if value is None else BARS[int((value - low) / span * (len(BARS) - 1) + 0.5) if span else 0]
        for value in values
    )


def _systems(ordered: list[Results]) -> list[str]:
    """Updates of the operating system, which can move every series at once; what can't be known of the machine."""
    named = [(one.machine_facts.get("os", ""), one.commit[:8]) for one in ordered]
    notes = [f"os: {old} -> {new} at {at}" for (old, _), (new, at) in itertools.pairwise(named) if old != new]
    if not any(one.machine_facts.get("cpu") for one in ordered):
        notes.append("asv was not told the machine's CPU: two machines of one name can't be told apart (docs/asv.md)")
    return notes


def _notes(made: list[Series], shown: list[Series]) -> list[str]:
    notes = []
    if hidden := len(made) - len(shown):
        notes.append(f"{hidden} combinations were skipped at every commit")
    versions: dict[str, set[str]] = defaultdict(set)
    for one in shown:
        versions[one.label].add(one.version)
    changed = sorted(label for label, found in versions.items() if len(found) > 1)
    if changed:
        few = ", ".join(changed[:3]) + (" ..." if len(changed) > 3 else "")
        notes.append(f"{len(changed)} have several versions of their benchmark, each a series of its own: {few}")
    return notes
