"""A made-up machine on which both sides of a pair run: its processes give times that are known."""

from andrea_bench.hardware import cpu
from andrea_bench.measure.session import KernelStopped, Lost, Progress
from andrea_bench.measure.task import Task, empty_record
from andrea_bench.problem import Problem
from andrea_bench.protocol import Protocol
from andrea_bench.record import Record, Status, Validity

MEMBERS = [("qkv_projection", "per_head_loop"), ("qkv_projection", "fused_qkv")]


def make_task(seq_len: int = 64, members: list[tuple[str, str]] | None = None) -> Task:
    problem = Problem(seq_len=seq_len, n_head=4, head_dim=16)
    return Task(
        suite="projection", problem=problem, members=list(MEMBERS if members is None else members), device="cpu",
        device_name="cpu", protocol=Protocol(seed=3),
    )  # fmt: skip


class Machine:
    """Processes of both sides on a machine that gets slower by 2 % with each turn, and takes twice the time in
    turns that are loaded."""

    def __init__(self, factors: tuple[float, float] = (1.0, 1.0), drift: float = 1.02) -> None:
        self.factors, self.drift = factors, drift
        self.by_pair: dict[tuple[int, str], list[float]] = {}  # (side, kernel): more factors, of one pair each, in turn
        self.loaded: set[int] = set()
        self.turns: list[tuple[int, int]] = []  # (side, seq_len)
        self.measured: list[tuple[int, tuple[tuple[str, str], ...]]] = []
        self.checked: list[int] = []  # side
        self.pinned: list[tuple[int, int, int]] = []  # (side, after so many turns, to which CPU)
        self.alive = 0
        self.born: list[tuple[int, int]] = []  # (side, threads)
        self.now, self.turn_seconds = 0.0, 1.0
        self.fail: dict[tuple[int, str], str] = {}
        self.fail_in_turn: tuple[int, str] | None = None
        self.lose: tuple[int, str] | None = None
        self.lose_at = 0  # seq_len of the Group in which; 0: any
        self.lose_status: Status = "timeout"
        self.lose_times = 1
        self.lose_in_check = False
        self.lose_seconds = 0.0  # until it is seen
        self.wrong_after: int | None = None  # turns, after which a check finds fused_qkv of head wrong
        self.scarce: str | None = None  # a kernel that finds no memory on head while the other side is at work
        self.invalid_turns: set[int] = set()
        self.counters: dict[str, object] = {}  # what a process tells of its turn
        self.foreign_cpus = 0.0  # that other processes keep busy, of two
        self.stolen_turns: set[int] = set()  # in which the hypervisor took a third of the CPUs' time
        self.foreign_s = self.stolen_s = 0.0  # so far
        self.interrupt_in_turn: int | None = None
        self.stops = False

    def make(self, side: int, threads: int = 1) -> "Process":
        self.alive += 1
        self.born.append((side, threads))
        return Process(self, side)

    def snapshot(self) -> cpu.Snapshot:
        """The CPU's counters, as cpu.snapshot() reads them: put the Machine in its place."""
        return cpu.Snapshot(
            time_s=self.now, cpus=2, busy_s=self.now + self.foreign_s, steal_s=self.stolen_s, total_s=2 * self.now,
            own_s=self.now, reasons=dict.fromkeys(("temperature_celsius", "clock_mhz"), "made up"),
        )  # fmt: skip

    def monotonic(self) -> float:
        """The time, as the module `time` tells it: put the Machine in its place."""
        return self.now


class Process:
    def __init__(self, machine: Machine, side: int) -> None:
        self.machine, self.side = machine, side

    def run(self, task: Task, progress: Progress) -> list[Record]:
        machine, brief = self.machine, task.protocol.max_samples == 1
        # Every process checks the kernels once, before its first turn.
        assert task.checked != brief
        if machine.stops:
            raise KernelStopped("a kernel raised SystemExit: 1")
        if brief:
            machine.checked.append(self.side)
        else:
            machine.turns.append((self.side, task.problem.seq_len))
            machine.measured.append((self.side, tuple(task.members)))
            machine.now += machine.turn_seconds
            machine.foreign_s += machine.foreign_cpus * machine.turn_seconds
            machine.stolen_s += 2 / 3 * machine.turn_seconds * (len(machine.turns) in machine.stolen_turns)
            if len(machine.turns) == machine.interrupt_in_turn:
                raise KeyboardInterrupt
        return [self._record(task, i, brief) for i in range(len(task.members))]

    def _record(self, task: Task, index: int, brief: bool) -> Record:
        machine, (op, name) = self.machine, task.members[index]
        here = machine.lose_at in (0, task.problem.seq_len)
        if machine.lose == (self.side, name) and here and brief == machine.lose_in_check and machine.lose_times:
            machine.lose_times -= 1
            machine.now += machine.lose_seconds
            raise Lost(index, machine.lose_status, "hung")
        record = empty_record(task, op, name)
        record.counters |= machine.counters
        record.status = machine.fail.get((self.side, name), "ok")  # type: ignore[assignment]
        if machine.wrong_after is not None and name == "fused_qkv" and self.side == 1 and brief:
            record.status = "wrong" if len(machine.turns) > machine.wrong_after else "ok"
        if machine.scarce == name and self.side == 1 and machine.alive > 1:
            record.status = "out_of_memory"
        if machine.fail_in_turn == (self.side, name) and not brief:
            record.status = "error"
        if record.status == "ok":
            level = 100 * machine.factors[self.side] * machine.drift ** len(machine.turns)
            level *= 2 if len(machine.turns) in machine.loaded else 1
            of_pairs = machine.by_pair.get((self.side, name), [1.0])
            level *= of_pairs[task.block % len(of_pairs)]
            record.samples_us = [level, level, level]
            first = task.order_start + 3 * index
            record.order, record.block, record.round = [first, first + 1, first + 2], [task.block] * 3, [0, 1, 2]
            record.timing_mode, record.cache = "host_wall", "warm"
            if len(machine.turns) in machine.invalid_turns:
                record.validity = Validity(verdict="invalid", reasons=["held back"])
        return record

    def pin(self, cpu: int) -> None:
        self.machine.pinned.append((self.side, len(self.machine.turns), cpu))

    def close(self) -> None:
        self.machine.alive -= 1
