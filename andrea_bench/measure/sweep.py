"""A sweep: the Plan's Groups measured one after another, each stored when it is done."""

import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from andrea_bench.environment import differences, environment
from andrea_bench.errors import AndreaError, BadInput, EnvironmentUnfit
from andrea_bench.measure.clock import FakeClock
from andrea_bench.measure.session import Executor, InProcess, KernelStopped, Session, Worker
from andrea_bench.measure.task import Task, empty_record
from andrea_bench.plan import Group, Plan, estimated_group_seconds
from andrea_bench.record import Record, RunHead
from andrea_bench.store import RunWriter, StoredRun, read_records, read_run

Report = Callable[[float, str], None]  # (estimated seconds of work done, what is at work)


class Stopped(AndreaError, RuntimeError):
    """A kernel ended the sweep; what was measured before is stored."""

    exit_code = 4


class Sweep:
    """Measures a Plan into a Run's folder; a context manager that holds the folder's lock.

    resume: `folder` holds a Run; measure only the Groups that it lacks. Raises BadInput where it is another
    machine's or another protocol's, saying what differs.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        arguments: list[str],
        folder: Path | None = None,
        resume: bool = False,
        fake_clock: bool = False,
    ) -> None:
        self.plan = plan
        self.folder = folder or default_folder()
        self.records: list[Record] = []
        self._fake_clock = fake_clock
        self._resume = resume
        self.head = RunHead(
            started_at=_now(),
            arguments=arguments,
            protocol=msgspec.to_builtins(plan.protocol),
            seed=plan.protocol.seed,
            environment=environment(plan.device),
        )
        self._writer: RunWriter

    def __enter__(self) -> "Sweep":
        if not self._resume:
            self._writer = RunWriter.create(self.folder, self.head)
            return self
        self._writer = RunWriter.resume(self.folder)
        try:
            stored = read_run(self.folder)
            self._refuse_other(stored)
        except BadInput:
            self._writer.close()
            raise
        self.head = self._writer.head = stored.head
        self.records = self._whole_groups(stored)
        if len(self.records) != len(stored.records):
            self._writer.keep_only(self.records)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None and issubclass(kind, EnvironmentUnfit) and not self._resume and not self.records:
            self._writer.discard()  # nothing could be measured: there is nothing to go on with
        self._writer.close()

    def _refuse_other(self, stored: StoredRun) -> None:
        mine = self.plan.protocol.comparable()
        theirs = {name: stored.head.protocol.get(name) for name in mine}
        found = [f"{name} {theirs[name]!r} there, {mine[name]!r} here" for name in mine if mine[name] != theirs[name]]
        found += differences(stored.head.environment, self.head.environment)
        if found:
            raise BadInput(f"{self.folder}: is a Run of another machine or protocol: {'; '.join(found)}")

    def _whole_groups(self, stored: StoredRun) -> list[Record]:
        """The stored records, without those of a Group of this Plan that was cut off within."""
        have = {(r.suite, r.problem, r.device, r.op, r.kernel) for r in stored.records}
        broken = set()
        for group in self.plan.groups:
            key = (group.suite.name, group.problem, self._device_name(group))
            cells = [(*key, cell.kernel.op, cell.kernel.name) for cell in group.cells]
            if any(c in have for c in cells) and not all(c in have for c in cells):
                broken.add(key)
        return [r for r in stored.records if (r.suite, r.problem, r.device) not in broken]

    def _device_name(self, group: Group) -> str:
        """`cpu` for one thread; more threads are another device, so that both can stand in one Run."""
        return self.plan.device if group.threads == 1 else f"{self.plan.device}:threads={group.threads}"

    def plan_line(self) -> str:
        """What will be measured, in one line."""
        left = self._left()
        cells = len(list(self.plan.cells()))
        measured = sum(cell.status is None for group in left for cell in group.cells)
        stored = cells - sum(len(group.cells) for group in left)
        return (
            f"{measured} of {cells} cells in {len(left)} groups to be measured on "
            f"{self.plan.device}{f' ({stored} are stored)' if stored else ''}, about {self.total_seconds:.0f} s"
        )

    @property
    def total_seconds(self) -> float:
        """Estimate of what is left to be measured, as `run` reports it."""
        left = self._left()
        return replace(self.plan, groups=left).estimated_seconds() if left else 0.0

    def _left(self) -> list[Group]:
        """The Groups of the Plan that the Run lacks."""
        present = {(r.suite, r.problem, r.device) for r in self.records}
        return [g for g in self.plan.groups if (g.suite.name, g.problem, self._device_name(g)) not in present]

    def run(self, report: Report) -> None:
        """Measure what is missing. Raises KeyboardInterrupt through, Stopped where a kernel ended it."""
        done_seconds = 0.0
        left = self._left()
        for threads in sorted({group.threads for group in left}):
            with Session(self._executors(threads)) as session:
                self._note_process(session)
                for group in left:
                    if group.threads != threads:
                        continue
                    records = self._measure(session, group, partial(_tell, report, group, done_seconds))
                    self._writer.append(records)
                    self.records += records
                    done_seconds += estimated_group_seconds(group, self.plan.device, self.plan.protocol)
        self.head.complete, self.head.ended_at = True, _now()
        self._writer.save_head()

    def _note_process(self, session: Session) -> None:
        """Put into a new Run's environment what only a measuring process knows: its allocator, its GPU."""
        first = session.executors[0]
        if self._resume or not isinstance(first, Worker):
            return
        first.start()
        facts = {name: value for name, value in first.facts.items() if name != "event"}
        if facts.get("gpu_uuid") or facts.get("gpu_pci_bus_id"):
            self.head.environment = environment(self.plan.device, facts["gpu_uuid"], facts["gpu_pci_bus_id"])
        self.head.environment["measuring_process"] = facts
        self._writer.save_head()

    def _executors(self, threads: int) -> list[Executor]:
        count = self.plan.protocol.processes
        if self._fake_clock:
            return [InProcess(partial(FakeClock, block)) for block in range(count)]
        return [Worker(self.plan.device, threads) for _ in range(count)]

    def _measure(self, session: Session, group: Group, progress: Callable[[str, str], None]) -> list[Record]:
        """The Group's records in its cells' order: measured ones, and those that the Plan ruled out."""
        git = self.head.environment.get("git") or {}
        task = Task(
            suite=group.suite.name,
            problem=group.problem,
            members=[(op, name) for op, name in group.members],
            device=self.plan.device,
            device_name=self._device_name(group),
            protocol=msgspec.structs.replace(self.plan.protocol, threads=group.threads),
            git_commit=git.get("commit"),
            dirty=git.get("dirty"),
        )
        try:
            measured = {(r.op, r.kernel): r for r in session.measure(task, progress)} if task.members else {}
        except KernelStopped as stop:
            raise Stopped(f"{stop}; what was measured before is stored in {self.folder}") from None
        records = []
        for cell in group.cells:
            member = (cell.kernel.op, cell.kernel.name)
            record = measured.get(member) or empty_record(task, *member)
            if cell.status is not None:
                record.status, record.reason = cell.status, cell.reason
            records.append(record)
        return records

    def interrupt(self) -> None:
        """Leave the Run usable and marked incomplete; `records` becomes what is on disk."""
        self.head.ended_at = _now()
        self._writer.save_head()
        self.records = list(read_records(self.folder))


def _tell(report: Report, group: Group, done_seconds: float, kernel: str, stage: str) -> None:
    report(done_seconds, f"{group.suite.name} {group.problem.label()}: {kernel}")


def default_folder() -> Path:
    """results/<time>-<host>, with a host name that is a file name everywhere."""
    host = "".join(c if c.isalnum() and c.isascii() else "-" for c in socket.gethostname()).strip("-") or "host"
    return Path("results") / f"{datetime.now().strftime('%Y%m%d-%H%M%S')}-{host[:40]}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
