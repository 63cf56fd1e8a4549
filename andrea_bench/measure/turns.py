"""The turns of one Group in a pair of processes: whose it is, on which CPU, and what disturbed the machine meanwhile.

Each four is in the order base, head, head, base or its mirror, drawn at random, so that drift, and load that comes
and goes, hits both alike. A side works while the other one waits.
"""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from typing import Protocol as Interface

import msgspec

from andrea_bench.hardware import cpu
from andrea_bench.measure.counters import Watch, throttled
from andrea_bench.measure.session import Executor, Lost
from andrea_bench.measure.task import Task
from andrea_bench.measure.validity import marks
from andrea_bench.protocol import Protocol
from andrea_bench.record import TIMED, Record

BASE, HEAD = 0, 1
ORDERS = ((BASE, HEAD, HEAD, BASE), (HEAD, BASE, BASE, HEAD))


class Rhythm(NamedTuple):
    """seconds: sampling time of a Group in one turn. fours: of turns of a Group in a pair, at most."""

    seconds: float
    fours: int


# Many short turns rather than few long ones: load that comes and goes then hits both sides alike. With five other
# processes on two CPUs (2026-11-29, eight pairs each, in turn) the log ratio of a pair's process medians had an rms of
# 2.6 % with turns of 0.02 s, and 11.6 % with one four of 0.15 s each whose turns' medians were averaged. On those CPUs
# with nothing else to do (2026-11-30, 24 pairs each, in turn; a quiet and a noisy hour) the 99 % interval of a cell was
# +-0.30 and 0.33 % with twelve fours of 0.008 s, +-0.32 and 0.42 % with six of 0.02 s (fifth percentiles), and in the
# quiet hour +-0.40 % with twenty of 0.004 s. On a GPU, where each turn asks the driver too, it was not tried.
# Since then a kernel has its samples of a turn three on end (group.py), not in turn with the others: 14 pairs each, in
# turn, in a noisy hour: the log ratio of a pair's fifth percentiles had an rms of 0.33 % so (five on end:
# 0.41 %, three after a warm-up round besides: 0.29 % in 7 % more time), and of 0.99 % before.
RHYTHMS = {"cpu": Rhythm(0.008, 12), "cuda": Rhythm(0.02, 6)}
GROUP_SECONDS = 1.5  # no further four is begun after so long: where calls are long, one or two must do

# Both processes stay on one CPU, drawn anew for each Group of a pair: they never work at the same time there, and of
# two CPUs of a virtual machine one may be slower for seconds. On the machine above (2026-11-30, 42 pairs each, in turn)
# the log ratio of a pair's first deciles had an rms of 0.8 % so, and of 4.1 % where the system placed them.


class Pinned(Executor, Interface):
    """An Executor whose process can be kept on one CPU."""

    def pin(self, cpu: int) -> None:
        """Keep the process on that CPU from now on."""


class LostInTurn(Exception):
    """A process was lost in a turn of its side."""

    def __init__(self, side: int, lost: Lost) -> None:
        super().__init__(str(lost))
        self.side, self.lost = side, lost


@dataclass(frozen=True)
class GroupTurns:
    """What the turns of a Group gave, in order: (side, Records of the members). held_back: why none can be used."""

    turns: Sequence[tuple[int, list[Record]]]
    held_back: str | None

    def failed(self, index: int) -> dict[int, Record]:
        """Of a member, by side, the Record of a turn in which it failed."""
        return {side: records[index] for side, records in self.turns if records[index].status not in TIMED}

    def usable(self, index: int) -> tuple[list[tuple[int, Record]], str | None]:
        """Of a member, (side, Record) of each turn but for fours in which the machine was held back; where those are
        more than half, none, and why."""
        found = [(side, records[index]) for side, records in self.turns]
        reasons = [self.held_back or _held_back(record) for _, record in found]
        # A four without one of its turns would no longer cancel drift.
        bad = {turn // 4 for turn, why in enumerate(reasons) if why}
        if 4 * len(bad) > len(found) / 2:
            return [], next(why for why in reasons if why)
        return [turn for i, turn in enumerate(found) if i // 4 not in bad], None


class Turns:
    """Has the processes of both sides measure a Group in turns. rhythm: None is that of the device.

    count: of turns so far. disturbed: what disturbed the machine, of each turn in which something did."""

    def __init__(self, device: str, seed: int, rhythm: Rhythm | None = None) -> None:
        self.count = 0
        self.disturbed: list[str] = []
        self.rhythm = rhythm or RHYTHMS[device.partition(":")[0]]
        # Around all turns of a Group in a pair, and over a second at least: one turn is shorter than a tick of the
        # CPU's counters. Of a GPU each process tells what it saw.
        self._watch = Watch(device) if device == "cpu" else None
        self._random = random.Random(seed)
        self._taken = [0, 0]  # samples by side, of all cells: the position of the next

    def take(self, executors: Sequence[Pinned], task: Task) -> GroupTurns:
        """Measure a Group. Raises LostInTurn."""
        task = msgspec.structs.replace(task, protocol=self._of_one(task.protocol), checked=True)
        if task.device == "cpu" and task.protocol.threads == 1:
            place = self._random.choice(cpu.affinity())
            for executor in executors:
                executor.pin(place)
        if self._watch:
            self._watch.before()
        turns: list[tuple[int, list[Record]]] = []
        rounds = [0, 0]
        for side in self._sides():
            records = self._take_one(executors[side], side, task)
            for record in records:
                record.round = [rounds[side] + number for number in record.round]
            rounds[side] = 1 + max((record.round[-1] for record in records if record.round), default=-1)
            turns.append((side, records))
        if self._watch is None:
            return GroupTurns(turns, None)
        seen = self._watch.after()
        self._note_disturbance(task.device, seen.counters, len(turns))
        return GroupTurns(turns, throttled(seen))

    def _take_one(self, executor: Pinned, side: int, task: Task) -> list[Record]:
        try:
            records = executor.run(msgspec.structs.replace(task, order_start=self._taken[side]), silent)
        except Lost as lost:
            raise LostInTurn(side, lost) from None
        self.count += 1
        self._taken[side] += sum(len(record.samples_us) for record in records)
        watched = next((record.counters for record in records if "interval_s" in record.counters), None)
        if watched and self._watch is None:
            self._note_disturbance(task.device, watched, turns=1)
        return records

    def _note_disturbance(self, device: str, counters: Mapping[str, Any], turns: int) -> None:
        self.disturbed += [text for _, text in marks(device, counters)][:1] * turns

    def _sides(self) -> Iterator[int]:
        """Whose turn it is, in whole fours until the Group has had its time in this pair."""
        began = time.monotonic()
        for number in range(self.rhythm.fours):
            if number and time.monotonic() - began > GROUP_SECONDS:
                return
            yield from self._random.choice(ORDERS)

    def _of_one(self, protocol: Protocol) -> Protocol:
        # The turn ends by time: how well one process knows its median says nothing of how pairs differ. Each kernel
        # warms up by a call of its own, before its samples.
        return msgspec.structs.replace(
            protocol, warmup_rounds=0, min_samples=1, max_samples=100_000, target=1e-9, time_limit_s=self.rhythm.seconds
        )


def _held_back(record: Record) -> str | None:
    """Why a turn's times can't be used; None where they can."""
    if record.status == "throttled":
        return f"throttled: {record.reason}"
    return "; ".join(record.validity.reasons) if record.validity.verdict == "invalid" else None


def silent(kernel: str, stage: str) -> None:
    """No progress: what turns are taken in is not shown."""
