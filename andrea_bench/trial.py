"""A trial of two revisions: pairs of processes until every cell is settled or the budget is spent."""

import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from andrea_bench.calibration import MOST_DISTURBED
from andrea_bench.environment import environment
from andrea_bench.errors import BadInput, EnvironmentUnfit
from andrea_bench.measure.pairs import Pairs, device_name
from andrea_bench.measure.session import KernelStopped, Lost, Progress, Worker
from andrea_bench.measure.task import SAMPLING, Task
from andrea_bench.measure.turns import BASE, HEAD
from andrea_bench.protocol import Protocol
from andrea_bench.record import Record, RunHead
from andrea_bench.revisions import PlannedCell, Revision, Revisions
from andrea_bench.store import RunWriter, StoredRun
from andrea_bench.verdicts import Document, Policy
from andrea_bench.verdicts.sequential import Trial
from andrea_bench.verdicts.wording import collapsed

RESERVE = 1.3  # of the longest pair so far: what the next may take, and the end of the trial after it
Report = Callable[[str], None]


class RevisionWorker(Worker):
    """A measuring process of one revision's own code.

    That code may be too old, or too new, to be driven by this: raises EnvironmentUnfit where it does not start, takes
    its samples in another way, ends before it begins a kernel, or answers in a way that can't be read."""

    def __init__(self, revision: Revision, device: str, threads: int, understood: set[str]) -> None:
        self._revision = revision
        self._understood = understood  # sides of which some process has answered a Task
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115  # as long-lived as the worker
        super().__init__(device, threads, revision.environment(), self._printed)

    def start(self) -> None:
        try:
            super().start()
        except EnvironmentUnfit as error:
            if self.facts.get("event") == "unfit":  # it says itself what the machine lacks
                raise
            raise self._foreign(str(error)) from None
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            raise self._foreign(f"{type(error).__name__}: {error}") from None
        if self.facts.get("sampling") != SAMPLING:
            raise self._unusable("it takes its samples in another way, so that its times can't be compared")

    def run(self, task: Task, progress: Progress) -> list[Record]:
        try:
            records = super().run(task, progress)
        except KernelStopped as stop:
            raise KernelStopped(f"{self._revision.side} {self._revision.label}: {stop}") from None
        except Lost as lost:
            if self._revision.side in self._understood or self.calls_begun:
                raise
            raise self._foreign(lost.reason) from None
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            raise self._foreign(f"{type(error).__name__}: {error}") from None
        self._understood.add(self._revision.side)
        return records

    def _foreign(self, why: str) -> EnvironmentUnfit:
        """Why it can't be used: the last line that its process printed, if any, tells more."""
        self._printed.seek(0)
        printed = self._printed.read().decode(errors="replace").strip().splitlines()
        return self._unusable(printed[-1][:300] if printed else why)

    def _unusable(self, why: str) -> EnvironmentUnfit:
        """What to say: which side, why, and what next."""
        side = self._revision
        return EnvironmentUnfit(
            f"{side.side} {side.label}: its measuring process can't be used by this version of andrea-bench ({why}); "
            f"name another revision, or `sweep` each with its own code and let `gate` compare the Runs"
        )


class RevisionTrial:
    """Measures the cells that both revisions plan, and judges them.

    plan_arguments: of the verb `plan`, which each revision's own code answers. Raises BadInput where they
    have no cell in common."""

    def __init__(
        self, revisions: Revisions, plan_arguments: list[str], *, device: str, protocol: Protocol, policy: Policy
    ) -> None:
        self._revisions, self._policy = revisions, policy
        self._device, self._threads = device, protocol.threads
        name = device_name(device, protocol.threads)
        base, head = (side.plan(plan_arguments) for side in (revisions.base, revisions.head))
        self._only = _planned_only(base, head, name), _planned_only(head, base, name)
        common = {cell.cell_id for cell in head}
        cells = [c for c in base if c.cell_id in common and c.status is None and c.threads == protocol.threads]
        if not cells:
            raise BadInput(
                f"{revisions.base.label} and {revisions.head.label} have no cell in common that can run here"
            )
        self._cells = len(cells)
        self._understood: set[str] = set()
        self._pairs = Pairs(
            (self._starter(revisions.base), self._starter(revisions.head)),
            _tasks(cells, device, protocol),
        )
        self.base, self.head = (self._run(side, protocol) for side in (revisions.base, revisions.head))

    @property
    def pairs(self) -> int:
        """How many pairs of processes were measured whole."""
        return self._pairs.count

    def run(self, deadline: float, report: Report) -> Document:
        """Measure until every cell is settled, or another pair would not end before `deadline` (monotonic)."""
        trial = Trial(self.base, self.head, self._policy, self._cells)
        longest = 0.0
        while True:
            started, before = time.monotonic(), self.pairs
            try:
                self._pairs.measure()
            except KernelStopped as stop:
                raise EnvironmentUnfit(f"{stop}; nothing can be judged") from None
            now = time.monotonic()
            if self.pairs > before:  # one in which a kernel hung says nothing of the next
                longest = max(longest, now - started)
            last = now + RESERVE * longest > deadline or not self._pairs.left
            report(f"pair {self.pairs}: {self._pairs.left} of {self._cells} cells are open")
            if not (last or trial.due(self.pairs)):
                continue
            document = trial.look(self._records(BASE), self._records(HEAD), self.pairs, last=last)
            self._pairs.settle(set(trial.settled))
            if last or not self._pairs.left:
                return self._completed(document)

    def store(self, folder: Path, *, complete: bool = True) -> None:
        """Write both sides as Runs, folder/base and folder/head. complete: False of a trial that was cut off."""
        for name, side, run in (("base", BASE, self.base), ("head", HEAD, self.head)):
            run.head.complete, run.head.ended_at = complete, run.head.ended_at or _now()
            with RunWriter.create(folder / name, run.head) as writer:
                writer.append([r for r in self._records(side) if r.samples_us or r.status != "ok"])

    def _records(self, side: int) -> list[Record]:
        return self._pairs.records(side) + self._only[side]

    def _starter(self, revision: Revision) -> Callable[[], Worker]:
        return lambda: RevisionWorker(revision, self._device, self._threads, self._understood)

    def _run(self, revision: Revision, protocol: Protocol) -> StoredRun:
        facts = {**environment(self._device), "git": {"commit": revision.commit, "revision": revision.label}}
        head = RunHead(
            complete=True,
            started_at=_now(),
            protocol=msgspec.to_builtins(protocol),
            seed=protocol.seed,
            environment=facts,
        )
        return StoredRun(Path(revision.side), head, [])

    def _completed(self, document: Document) -> Document:
        document.warnings += self._revisions.warnings
        disturbed, turns = self._pairs.turns.disturbed, self._pairs.turns.count
        if len(disturbed) > MOST_DISTURBED * turns:
            share = f"{100 * len(disturbed) / turns:.0f} % of the turns"
            document.warnings.append(f"the machine was disturbed in {share}: {'; '.join(collapsed(disturbed))}")
        if self._pairs.left_out:
            document.warnings.append(
                f"{self._pairs.left_out} times a cell's pair was left out: the machine was held back meanwhile"
            )
        for run in (self.base, self.head):
            run.head.ended_at = _now()
        return document


def _planned_only(cells: list[PlannedCell], others: list[PlannedCell], device: str) -> list[Record]:
    """A Record without samples for each cell that could run in one plan and doesn't stand in the other."""
    there = {cell.cell_id for cell in others}
    return [
        Record(
            cell_id=c.cell_id, suite=c.suite, op=c.op, kernel=c.kernel, problem=c.problem, device=device, status="ok",
            reason="planned, not measured", flops=0, min_bytes=0, started_at=_now(),
        )
        for c in cells
        if c.cell_id not in there and c.status is None
    ]  # fmt: skip


def _tasks(cells: list[PlannedCell], device: str, protocol: Protocol) -> list[Task]:
    """One Task for each suite and Problem, in the order of the cells."""
    tasks: dict[tuple[object, ...], Task] = {}
    name = device_name(device, protocol.threads)
    for cell in cells:
        new = Task(
            suite=cell.suite, problem=cell.problem, members=[], device=device, device_name=name, protocol=protocol
        )
        tasks.setdefault((cell.suite, cell.problem), new).members.append((cell.op, cell.kernel))
    return list(tasks.values())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
