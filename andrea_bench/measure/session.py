"""The session of measuring processes: hands out Tasks, kills what hangs, merges what comes back.

N processes live as long as the sweep; each Group goes to one after the other, so that its samples come from
N processes and N stretches of time: the unit of replication. A process that hangs or dies is replaced, the
kernel it was at is marked, and the Group is measured again without it.
"""

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from typing import Protocol as Interface

import msgspec

from andrea_bench.errors import EnvironmentUnfit
from andrea_bench.measure.task import Task, empty_record
from andrea_bench.measure.worker import PULSE
from andrea_bench.record import TIMED, Record, Status

START_LIMIT_S = 120.0  # importing torch from a cold disk

Progress = Callable[[str, str], None]  # (kernel, stage)


class KernelStopped(Exception):
    """A kernel asked for the end of the whole sweep (SystemExit, KeyboardInterrupt)."""


class Executor(Interface):
    """Measures one Task in one process."""

    def run(self, task: Task, progress: Progress) -> list[Record]:
        """The records of the Task. Raises Lost where the process hung or died."""

    def close(self) -> None:
        """End the process."""


class Lost(Exception):
    """A measuring process hung or died while at the Task's `member`."""

    def __init__(self, member: int, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.member, self.status, self.reason = member, status, reason


class InProcess:
    """Measures in this process, with a given clock: for tests and the fake clock."""

    def __init__(self, make_clock: Callable[[], Any]) -> None:
        self._make_clock = make_clock

    def run(self, task: Task, progress: Progress) -> list[Record]:
        from andrea_bench.measure.group import measure_group

        def heartbeat(member: int, stage: str) -> None:
            progress(task.members[member][1], stage)

        return measure_group(task, self._make_clock(), heartbeat=heartbeat)

    def close(self) -> None:
        """Nothing to end."""


def same_code() -> dict[str, str]:
    """Variables by which a new interpreter imports what this one does: `python -m` would else take a package of
    the current folder first, such as the andrea_bench of another checkout."""
    paths = [path or str(Path.cwd()) for path in sys.path]
    return {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


class Worker:
    """One measuring process, started anew when it was lost. environment: variables beside this process's, None:
    those of the same code. stderr: a file for what it prints; None: this process's own."""

    def __init__(
        self, device: str, threads: int, environment: Mapping[str, str] | None = None, stderr: IO[bytes] | None = None
    ) -> None:
        self._device, self._threads, self._stderr = device, threads, stderr
        self._environment = {**os.environ, **(same_code() if environment is None else environment)}
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._ended = False
        self._starting = threading.Lock()
        self._reading = threading.RLock()  # held while the process is waited for: only then are its pipes closed
        self._pulse = tempfile.TemporaryFile()  # noqa: SIM115  # as long-lived as the worker
        self._pulse.write(PULSE.pack(0, 0))
        self._pulse.flush()
        self.facts: dict[str, Any] = {}

    def start(self) -> None:
        """Start the process and wait until it has imported torch. Raises EnvironmentUnfit; Lost after `close`."""
        pulse = self._pulse.fileno()
        with self._starting:
            if self._ended:
                raise Lost(0, "error", "no process is started any more")
            self._process = subprocess.Popen(
                [sys.executable, "-m", "andrea_bench.measure.worker", self._device, str(self._threads), str(pulse)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=self._environment,
                pass_fds=[pulse],
                start_new_session=True,
            )
        self._buffer = b""
        try:
            self.facts = self._next(START_LIMIT_S)
        except Lost as error:
            raise EnvironmentUnfit(f"the measuring process did not start: {error.reason}") from None
        if self.facts["event"] == "unfit":
            self._end()
            raise EnvironmentUnfit(self.facts["reason"])

    def run(self, task: Task, progress: Progress) -> list[Record]:
        if self._process is None:
            self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        # What a Task before left there must not be taken for a kernel of this one.
        os.pwrite(self._pulse.fileno(), PULSE.pack(0, 0), 0)
        try:
            self._process.stdin.write(msgspec.json.encode(task) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._end()
            if task.checked:  # by the process that is gone; samples of a new one would be taken for its own
                raise Lost(0, "error", "its process ended while it waited for its turn") from None
            return self.run(task, progress)
        while True:
            message = self._next(task.protocol.kernel_limit_s)
            if message["event"] == "at":
                progress(message["kernel"], message["stage"])
            elif message["event"] == "stop":
                self._end()
                raise KernelStopped(f"{task.members[self._read_pulse()[1]][1]}: {message['reason']}")
            else:
                return msgspec.convert(message["records"], list[Record])

    def _next(self, limit_s: float) -> dict[str, Any]:
        """The next message. Raises Lost when the process ends, or begins no call for `limit_s`."""
        assert self._process is not None
        assert self._process.stdout is not None
        last, since = self._read_pulse(), time.monotonic()
        with self._reading, selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(min(1.0, limit_s / 4)):
                    pulse, now = self._read_pulse(), time.monotonic()
                    if self._ended:
                        raise Lost(pulse[1], "error", "its process was ended")
                    if pulse != last:
                        last, since = pulse, now
                    elif now - since > limit_s:
                        self._end()
                        raise Lost(pulse[1], "timeout", f"hung: no end after {limit_s:g} s; its process was ended")
                    continue
                chunk = os.read(self._process.stdout.fileno(), 1 << 20)
                if not chunk:
                    raise self._death()
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = msgspec.json.decode(line)
        return message

    @property
    def calls_begun(self) -> int:
        """How many calls of kernels the process began in its last Task."""
        return self._read_pulse()[0]

    def _read_pulse(self) -> tuple[int, int]:
        """(calls begun, index of the kernel at work), as the process last wrote them."""
        begun, member = PULSE.unpack(os.pread(self._pulse.fileno(), PULSE.size, 0))
        return begun, member

    def _death(self) -> Lost:
        assert self._process is not None
        code, (_, member) = self._process.wait(), self._read_pulse()
        self._end()
        if code == -signal.SIGKILL:
            why = "its process was killed (signal 9), as the system does when memory runs out"
            return Lost(member, "out_of_memory", why)
        if code < 0:
            return Lost(member, "error", f"its process died of {signal.Signals(-code).name}")
        return Lost(member, "error", f"its process ended with exit code {code}")

    def pin(self, cpu: int) -> None:
        """Keep the process on one CPU from now on, where the system lets that be asked for. Threads that it has
        started already are not moved."""
        if self._process is not None and hasattr(os, "sched_setaffinity"):
            with suppress(OSError):
                os.sched_setaffinity(self._process.pid, {cpu})

    def close(self) -> None:
        """End the process, and start none any more. A thread that waits for it finds it lost."""
        with self._starting:
            self._ended = True
        self._end()

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        process.kill()
        process.wait()
        # Whoever reads must see its end first: a pipe that is closed under a selector is waited for in vain.
        with self._reading:
            if self._process is not process:
                return
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        continue
            self._process = None


class Session:
    """Measures Groups one after another over its executors; a context manager."""

    def __init__(self, executors: list[Executor]) -> None:
        self.executors = executors
        self._order = 0

    def measure(self, task: Task, progress: Progress = lambda kernel, stage: None) -> list[Record]:
        """One Record for each member of the Task, its samples from every process, in the members' order."""
        found: dict[tuple[str, str], Record] = {}
        for block, executor in enumerate(self.executors):
            # A kernel that failed in one process is not ok, whatever it does in others: it may hang in each of them.
            members = [m for m in task.members if m not in found or found[m].status in TIMED]
            for record in self._measure_block(task, members, block, executor, progress):
                member = (record.op, record.kernel)
                found[member] = _merge(found[member], record) if member in found else record
        return [found[op, kernel] for op, kernel in task.members]

    def _measure_block(
        self, task: Task, members: list[tuple[str, str]], block: int, executor: Executor, progress: Progress
    ) -> Iterator[Record]:
        """The records of some of a Group's members from one process. The kernel at which a process was lost is
        given its status, and the others are measured again without it."""
        while members:
            one = msgspec.structs.replace(task, members=members, block=block, order_start=self._order)
            try:
                records = executor.run(one, progress)
            except Lost as lost:
                member = members.pop(lost.member)
                yield lost_record(one, member, lost.status, lost.reason)
                continue
            self._order += sum(len(record.samples_us) for record in records)
            yield from records
            return

    def close(self) -> None:
        for executor in self.executors:
            executor.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def lost_record(task: Task, member: tuple[str, str], status: Status, reason: str) -> Record:
    """The Record of a kernel that took its process with it, or was never given one."""
    record = empty_record(task, *member)
    record.status, record.reason = status, reason
    return record


def _merge(first: Record, more: Record) -> Record:
    """The samples of two processes in one Record. The worse status counts: a kernel that was wrong, or ran
    out of memory, in one process is not ok."""
    if more.status not in TIMED or first.status not in TIMED:
        return first if first.status not in TIMED else more
    for name in ("samples_us", "host_us", "order", "block", "round"):
        getattr(first, name).extend(getattr(more, name))
    if more.status == "throttled":
        first.status, first.reason = more.status, more.reason
    verdicts = ("valid", "suspect", "invalid")
    first.validity = msgspec.structs.replace(
        first.validity,
        verdict=max(first.validity.verdict, more.validity.verdict, key=verdicts.index),
        reasons=list(dict.fromkeys(first.validity.reasons + more.validity.reasons)),
    )
    first.counters.setdefault("more_blocks", []).append(more.counters)
    return first
