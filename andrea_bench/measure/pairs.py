"""Measuring two revisions in pairs of short-lived processes that take turns.

A pair is one fresh process of either side. Both start at once and check every kernel; then, Group by Group, they
are measured in short turns (turns.py). After the turns of the first, second, fourth, eighth, ... pair every kernel
is checked again. What drifts, and load that comes and goes, hits both alike; what a process is born with (where its
memory lies) differs, and makes the pair the unit of replication.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from andrea_bench.measure.session import Executor, Lost, lost_record
from andrea_bench.measure.task import Task, unmeasured_record
from andrea_bench.measure.turns import BASE, GroupTurns, LostInTurn, Pinned, Rhythm, Turns, silent
from andrea_bench.record import TIMED, Record, Validity

MakeExecutor = Callable[[], Pinned]
Member = tuple[str, str]  # (op, kernel)
Cell = tuple[int, Member]  # (index of the Task, member)


def device_name(device: str, threads: int) -> str:
    """What Records call a device: as in a sweep, another one where each process has more threads than one."""
    return device if threads == 1 else f"{device}:threads={threads}"


@dataclass(frozen=True)
class _Failure:
    """A cell that failed on a side. lost: its process is gone with it."""

    side: int
    cell: Cell
    record: Record
    lost: bool = False


class Pairs:
    """Measures `tasks`, at least one, on both sides, pair by pair. make: starts a process of base, and one of head.

    The samples of a pair have its number as `block`, and its rounds are counted through all turns of a side.
    rhythm: None is that of the device."""

    def __init__(
        self, make: tuple[MakeExecutor, MakeExecutor], tasks: Sequence[Task], *, rhythm: Rhythm | None = None
    ) -> None:
        self.count = 0  # of pairs that were measured
        self.turns = Turns(tasks[0].device, tasks[0].protocol.seed, rhythm)
        self.left_out = 0  # samples of a cell in a pair, left out because the machine was held back meanwhile
        self._make = make
        self._tasks = list(tasks)
        self._records: tuple[dict[Cell, Record], dict[Cell, Record]] = ({}, {})
        self._open = {(i, member) for i, task in enumerate(tasks) for member in task.members}
        self._second_chances: set[Cell] = set()  # cells that failed by chance once

    def measure(self) -> None:
        """Measure one more pair. A kernel that fails on a side has its status there and is left out from then
        on, on both; a pair in which a process was lost counts for nothing."""
        executors = [make() for make in self._make]
        # A process ends with the thread that started it (PR_SET_PDEATHSIG), so the pool outlives the turns.
        with ThreadPoolExecutor(len(executors)) as pool:
            try:
                failures = self._learn(list(pool.map(self._warm_up, executors)))
                if not any(failure.lost for failure in failures):
                    failures += self._take_turns(executors)
                if not any(failure.lost for failure in failures) and _is_power_of_two(self.count):
                    # A kernel may go wrong with what it counts or keeps; it does so in each process alike.
                    failures += self._learn(list(pool.map(self._warm_up, executors)))
            finally:
                for executor in executors:
                    executor.close()
        for failure in failures:
            self._fail(failure)

    def settle(self, cell_ids: set[str]) -> None:
        """Measure these cells no more."""
        self._open -= {cell for cell, record in self._records[BASE].items() if record.cell_id in cell_ids}

    @property
    def left(self) -> int:
        """How many cells are still to be measured."""
        return len(self._open)

    def records(self, side: int) -> list[Record]:
        """The Records of a side, in the order of the Tasks and their members; of a cell to which no process came
        one without samples."""
        found = self._records[side]
        return [
            found.get((i, member)) or unmeasured_record(task, *member)
            for i, task in enumerate(self._tasks)
            for member in task.members
        ]

    def _live(self) -> Iterator[tuple[int, Task]]:
        """The Tasks, each with the members that are still to be measured."""
        for i, task in enumerate(self._tasks):
            members = [member for member in task.members if (i, member) in self._open]
            if members:
                yield i, msgspec.structs.replace(task, members=members, block=self.count)

    def _warm_up(self, executor: Executor) -> tuple[dict[Cell, Record], Cell | None]:
        """Have a process check every kernel, untimed: what came of each, and the one at which it was lost."""
        found: dict[Cell, Record] = {}
        for i, task in self._live():
            try:
                records = executor.run(_brief(task), silent)
            except Lost as lost:
                cell, record = _lost(i, task, lost)
                return {**found, cell: record}, cell
            found |= {(i, (record.op, record.kernel)): _without_samples(record) for record in records}
        return found, None

    def _learn(self, checks: Sequence[tuple[dict[Cell, Record], Cell | None]]) -> list[_Failure]:
        """Keep what the checks of both sides gave; the failures, which are left out from now on."""
        failures = []
        for side, (found, lost_at) in enumerate(checks):
            for cell, record in found.items():
                if record.status in TIMED:
                    self._records[side].setdefault(cell, record)
                else:
                    failures.append(_Failure(side, cell, record, lost=cell == lost_at))
        self._open -= {failure.cell for failure in failures}
        return failures

    def _fail(self, failure: _Failure) -> None:
        """Give a cell the status with which it failed. A process that died, or found no memory while the other was
        at work too, may have done so by chance: a kernel that goes well alone gets one more pair."""
        side, cell, record = failure.side, failure.cell, failure.record
        self._open.discard(cell)
        out_of_memory = record.status == "out_of_memory"
        if out_of_memory or (failure.lost and record.status != "timeout"):
            alone = self._alone(side, cell)
            if alone.status not in TIMED:
                record = alone
            elif cell not in self._second_chances:
                self._second_chances.add(cell)
                self._open.add(cell)
                return
            elif out_of_memory:
                self._doubt(cell, "memory ran out with both sides at work, not alone: sweep each and let gate compare")
                return
        kept = self._records[side].get(cell)
        if side == BASE and kept is not None and kept.samples_us:
            # A cell that could not run in base is passed over; this one could.
            self._doubt(cell, f"timed in base, but {record.status} in a later process of it: {record.reason}")
        else:
            self._records[side][cell] = record

    def _alone(self, side: int, cell: Cell) -> Record:
        """What comes of a kernel in a process of its own, with no other one at work."""
        i, member = cell
        task = msgspec.structs.replace(self._tasks[i], members=[member], block=self.count)
        executor = self._make[side]()
        try:
            (record,) = executor.run(_brief(task), silent)
        except Lost as lost:
            return _lost(i, task, lost)[1]
        finally:
            executor.close()
        return record

    def _doubt(self, cell: Cell, reason: str) -> None:
        """Mark what a cell has on either side as nothing that a verdict can rest on."""
        for records in self._records:
            if cell in records:
                records[cell].validity = Validity(verdict="invalid", reasons=[reason])

    def _take_turns(self, executors: Sequence[Pinned]) -> list[_Failure]:
        """Every Group in turns; their samples are kept when all turns of all went well: a number of a pair whose
        process was lost is given again, and samples of two processes would stand under it."""
        measured: list[tuple[int, Task, GroupTurns]] = []
        for i, task in self._live():
            try:
                measured.append((i, task, self.turns.take(executors, task)))
            except LostInTurn as gone:
                return [_Failure(gone.side, *_lost(i, task, gone.lost), lost=True)]
        failures = [failure for group in measured for failure in self._keep(*group)]
        self.count += bool(measured)
        return failures

    def _keep(self, i: int, task: Task, turns: GroupTurns) -> Iterator[_Failure]:
        """Keep a pair's samples of each cell, or leave the cell's pair out where the machine was held back. A kernel
        that failed in a turn has its status instead."""
        for index, member in enumerate(task.members):
            cell = i, member
            if failed := turns.failed(index):
                yield from (_Failure(side, cell, record) for side, record in failed.items())
                continue
            usable, why = turns.usable(index)
            if why:
                self.left_out += 1
                if not self._records[BASE][cell].samples_us:
                    self._doubt(cell, why)
            for side, record in usable:
                kept = self._records[side][cell]
                kept.validity = Validity()
                kept.samples_us.extend(record.samples_us)
                kept.host_us.extend(record.host_us)
                kept.order.extend(record.order)
                kept.block.extend([self.count] * len(record.samples_us))
                kept.round.extend(record.round)


def _is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def _brief(task: Task) -> Task:
    """The Task with as little timing as there can be: for its checks."""
    protocol = msgspec.structs.replace(task.protocol, warmup_rounds=1, min_samples=1, max_samples=1)
    return msgspec.structs.replace(task, protocol=protocol)


def _without_samples(record: Record) -> Record:
    """Keep what was checked, not what was timed while the other process was at work too."""
    record.samples_us, record.host_us, record.order, record.block, record.round = [], [], [], [], []
    if record.status == "throttled":
        record.status, record.reason = "ok", None
    # Whether a pair's turns were disturbed is judged turn by turn.
    record.validity = Validity()
    return record


def _lost(i: int, task: Task, lost: Lost) -> tuple[Cell, Record]:
    """The cell at which a process was lost, and its Record."""
    member = task.members[lost.member]
    return (i, member), lost_record(task, member, lost.status, lost.reason)
