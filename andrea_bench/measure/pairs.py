"""Measuring two revisions in pairs of short-lived processes that take turns.

A pair is one fresh process of either side. Both start at once and check every kernel; then, Group by Group, they
are measured in short turns, each four in the order base, head, head, base or its mirror, drawn at random, while
the other one waits. What drifts, and load that comes and goes, hits both alike; what a process is born with
(where its memory lies) differs, and makes the pair the unit of replication.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from andrea_bench.measure.session import Executor, Lost, lost_record
from andrea_bench.measure.task import Task
from andrea_bench.protocol import Protocol
from andrea_bench.record import TIMED, Record, Validity

BASE, HEAD = 0, 1
TURNS = ((BASE, HEAD, HEAD, BASE), (HEAD, BASE, BASE, HEAD))
# Many short turns rather than few long ones: load that comes and goes then hits both sides alike. With five other
# processes on two CPUs (2026-11-29, eight pairs each, in turn) the log ratio of a pair's process medians had an rms of
# 2.6 % so, and 11.6 % with one four of 0.15 s each whose turns' medians were averaged.
TURN_SECONDS = 0.02  # sampling time of a Group in one turn
FOURS = 8  # of turns of a Group in a pair, at most
GROUP_SECONDS = 1.5  # no further four is begun after so long: where calls are long, one or two must do

MakeExecutor = Callable[[], Executor]
Member = tuple[str, str]  # (op, kernel)
Cell = tuple[int, Member]  # (index of the Task, member)
Turns = list[tuple[int, int, list[Record]]]  # of a Group in a pair: (side, number of its turn, Records of the members)


def device_name(device: str, threads: int) -> str:
    """What Records call a device: as in a sweep, another one where each process has more threads than one."""
    return device if threads == 1 else f"{device}:threads={threads}"


class Pairs:
    """Measures `tasks` on both sides, pair by pair. make: starts a process of base, and one of head.

    The samples of a pair have its number as `block`; those of a side's first turn have `round` 0, of its second 1,
    and so on. turn_seconds: sampling time of a Group in one turn. fours: of turns of a Group in a pair, at most."""

    def __init__(
        self, make: tuple[MakeExecutor, MakeExecutor], tasks: Sequence[Task], *, turn_seconds: float = TURN_SECONDS,
        fours: int = FOURS,
    ) -> None:  # fmt: skip
        self.count = 0  # of pairs that were measured
        self.left_out = 0  # samples of a cell in a pair, left out because the machine was held back meanwhile
        self._make, self._fours = make, fours
        self._tasks = [msgspec.structs.replace(task, protocol=_one_turn(task.protocol, turn_seconds)) for task in tasks]
        self._records: tuple[dict[Cell, Record], dict[Cell, Record]] = ({}, {})
        self._open = {(i, member) for i, task in enumerate(tasks) for member in task.members}
        self._random = random.Random(tasks[0].protocol.seed if tasks else 0)

    def measure(self) -> None:
        """Measure one more pair. A kernel that fails on a side has its status there and is left out from then
        on, on both; a pair in which a process was lost counts for nothing."""
        executors = [make() for make in self._make]
        # A process ends with the thread that started it (PR_SET_PDEATHSIG), so the pool outlives the turns.
        with ThreadPoolExecutor(len(executors)) as pool:
            try:
                lost = list(pool.map(self._warm_up, (BASE, HEAD), executors))
                for records in self._records:
                    self._open -= {cell for cell, record in records.items() if record.status not in TIMED}
                if not any(lost):
                    self._take_turns(executors)
            finally:
                for executor in executors:
                    executor.close()

    def settle(self, cell_ids: set[str]) -> None:
        """Measure these cells no more."""
        self._open -= {cell for cell, record in self._records[BASE].items() if record.cell_id in cell_ids}

    @property
    def finished(self) -> bool:
        """Whether no cell is left to be measured."""
        return not self._open

    def records(self, side: int) -> list[Record]:
        """The Records of a side, in the order of the Tasks and their members."""
        found = self._records[side]
        order = [(i, member) for i, task in enumerate(self._tasks) for member in task.members]
        return [found[cell] for cell in order if cell in found]

    def _live(self) -> Iterator[tuple[int, Task]]:
        """The Tasks, each with the members that are still to be measured."""
        for i, task in enumerate(self._tasks):
            members = [member for member in task.members if (i, member) in self._open]
            if members:
                yield i, msgspec.structs.replace(task, members=members, block=self.count)

    def _warm_up(self, side: int, executor: Executor) -> bool:
        """Have a process check every kernel, untimed; True where it was lost."""
        records = self._records[side]
        for i, task in self._live():
            brief = msgspec.structs.replace(task, protocol=_brief(task.protocol))
            try:
                for record in executor.run(brief, _silent):
                    _without_samples(record)
                    cell = i, (record.op, record.kernel)
                    if cell not in records or record.status not in TIMED:
                        records[cell] = record
            except Lost as lost:
                member, record = _lost(task, lost)
                records[i, member] = record
                return True
        return False

    def _take_turns(self, executors: Sequence[Executor]) -> None:
        """Every Group in turns; their samples are kept when all turns of all went well: a number of a pair whose
        process was lost is given again, and samples of two processes would stand under it."""
        measured: list[tuple[int, Task, Turns]] = []
        for i, task in self._live():
            turns: Turns = []
            timed = msgspec.structs.replace(task, checked=True)
            for side in self._sides():
                number = sum(other == side for other, _, _ in turns)
                try:
                    turns.append((side, number, executors[side].run(timed, _silent)))
                except Lost as lost:
                    member, record = _lost(task, lost)
                    self._records[side][i, member] = record
                    self._open.discard((i, member))
                    return
            measured.append((i, task, turns))
        for i, task, turns in measured:
            self._keep(i, task, turns)
        self.count += bool(measured)

    def _sides(self) -> Iterator[int]:
        """Whose turn it is, in whole fours until the Group has had its time in this pair."""
        began = time.monotonic()
        for number in range(self._fours):
            if number and time.monotonic() - began > GROUP_SECONDS:
                return
            yield from self._random.choice(TURNS)

    def _keep(self, i: int, task: Task, turns: Turns) -> None:
        """Keep a pair's samples of each cell, but for fours in which the machine was held back; where those are more
        than half, the cell's pair is left out. A kernel that failed in a turn has its status instead."""
        for index, member in enumerate(task.members):
            cell = i, member
            found = [(side, number, records[index]) for side, number, records in turns]
            failed = {side: record for side, _, record in found if record.status not in TIMED}
            if failed:
                for side, record in failed.items():
                    self._records[side][cell] = record
                self._open.discard(cell)
                continue
            # A four without one of its turns would no longer cancel drift; each side has two turns in one.
            bad = {number // 2 for _, number, record in found if _held_back(record)}
            if 4 * len(bad) > len(found) / 2:
                self.left_out += 1
                continue
            for side, number, record in found:
                if number // 2 in bad:
                    continue
                kept = self._records[side][cell]
                kept.samples_us.extend(record.samples_us)
                kept.host_us.extend(record.host_us)
                kept.order.extend(record.order)
                kept.block.extend([self.count] * len(record.samples_us))
                kept.round.extend([number] * len(record.samples_us))


def _held_back(record: Record) -> bool:
    return record.status == "throttled" or record.validity.verdict == "invalid"


def _one_turn(protocol: Protocol, seconds: float) -> Protocol:
    # The turn ends by time: how well one process knows its median says nothing of how pairs differ.
    return msgspec.structs.replace(
        protocol, warmup_rounds=1, min_samples=2, max_samples=100_000, target=1e-9, time_limit_s=seconds
    )


def _brief(protocol: Protocol) -> Protocol:
    return msgspec.structs.replace(protocol, min_samples=1, max_samples=1)


def _without_samples(record: Record) -> None:
    """Keep what was checked, not what was timed while the other process was at work too."""
    record.samples_us, record.host_us, record.order, record.block, record.round = [], [], [], [], []
    if record.status == "throttled":
        record.status, record.reason = "ok", None
    # Whether a pair's turns were disturbed is judged turn by turn.
    record.validity = Validity()


def _lost(task: Task, lost: Lost) -> tuple[Member, Record]:
    """The member at which a process was lost, and its Record."""
    member = task.members[lost.member]
    return member, lost_record(task, member, lost.status, lost.reason)


def _silent(kernel: str, stage: str) -> None:
    """No progress within a turn."""
