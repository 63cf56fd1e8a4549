"""Work in child processes, each with a time limit.

A child is forked, so that any kernel can be compiled, wherever its source was defined; a compiler that
crashes or hangs takes only its child with it.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import re
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import msgspec

from andrea_bench.inspect import toolchain


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no binary: status `error` or `timeout`, and one line."""

    status: str
    reason: str


@dataclass(frozen=True)
class Task:
    """Work for one child. run: makes the result there. done: called with it, or with a Failure, in this process; the
    tasks that it returns come next. tool: what is to blame for a crash."""

    run: Callable[[], Any]
    done: Callable[[Any], Iterable["Task"]]
    tool: str = "the compiler"


@dataclass
class _Child:
    """A child at work: its task, its process, its end of the pipe, when it must be done, where its stderr goes."""

    task: Task
    process: Any
    pipe: Connection
    deadline: float
    errors: Path


def in_children(tasks: Iterable[Task], *, jobs: int | None = None, time_limit_s: float = 120.0) -> None:
    """Run tasks, and those that they lead to, each in a child of its own, `jobs` at once (default: the cores that this
    process may use). A task that raises, crashes or takes longer than time_limit_s gives a Failure."""
    jobs = jobs or len(os.sched_getaffinity(0))
    waiting, running = deque(tasks), list[_Child]()
    with tempfile.TemporaryDirectory(prefix="andrea_bench_") as folder:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(_start(waiting.popleft(), time_limit_s, Path(folder)))
                nearest = min(child.deadline for child in running)
                wait([child.pipe for child in running], timeout=max(0.0, nearest - time.monotonic()))
                for child in list(running):
                    if child.pipe.poll() or time.monotonic() >= child.deadline:
                        running.remove(child)
                        waiting.extendleft(child.task.done(_finish(child, time_limit_s)))
        finally:
            for child in running:
                _kill(child)


def _start(task: Task, time_limit_s: float, folder: Path) -> _Child:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    handle, errors = tempfile.mkstemp(dir=folder)
    os.close(handle)
    process = context.Process(target=_child_main, args=(task.run, theirs, Path(errors)), daemon=True)
    process.start()
    theirs.close()
    return _Child(task, process, ours, time.monotonic() + time_limit_s, Path(errors))


def _child_main(run: Callable[[], Any], pipe: Connection, errors: Path) -> None:
    faulthandler.disable()  # a crash is told by the parent, in one line
    # A group of its own, so that a time limit also ends the assembler that hangs.
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    tempfile.tempdir = str(errors.parent)  # what a child that is killed leaves goes with the parent's folder
    with errors.open("wb") as file:
        os.dup2(file.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        pipe.send(run())
    except BaseException as error:
        pipe.send(Failure(status="error", reason=_one_line(error)))
    finally:
        pipe.close()
        os._exit(0)


def _finish(child: _Child, time_limit_s: float) -> Any:
    try:
        if not child.pipe.poll():
            return Failure(status="timeout", reason=f"{child.task.tool} took longer than {time_limit_s:g} s")
        return child.pipe.recv()
    except EOFError:
        child.process.join()
        code = child.process.exitcode or 0
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        said = _last_line(child.errors.read_text(errors="replace")) if child.errors.exists() else ""
        return Failure(status="error", reason=f"{child.task.tool} crashed ({cause}){': ' + said if said else ''}")
    finally:
        _kill(child)


def _kill(child: _Child) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, signal.SIGKILL)
    child.process.kill()
    child.process.join()
    child.pipe.close()


def _one_line(error: BaseException) -> str:
    """What an error says, in one line: of a compilation error the cause, of the assembler its first complaint and
    which assembler it was."""
    text = str(error)
    complaint = re.search(r"^ptxas\S*\s.*(?:fatal|error).*$", text, re.MULTILINE)
    if complaint:
        used = re.search(r"Repro command: (\S+)", text)
        tool = Path(used[1]) if used else None
        by = f" ({tool} {toolchain.version_of(tool)})" if tool and tool.is_file() else ""
        return f"the assembler refused the code: {' '.join(complaint[0].split())}{by}"
    cause = getattr(error, "error_message", None) or _last_line(text)
    return f"{type(error).__name__}: {' '.join(str(cause).split())[:300]}{_where(error)}"


def _where(error: BaseException) -> str:
    """The line of the kernel that a compilation error is about; empty where it tells none."""
    source, number = getattr(error, "src", None), getattr(getattr(error, "node", None), "lineno", None)
    if not isinstance(source, str) or not number:
        return ""
    lines = source.splitlines()
    return f" (line {number} of it: {lines[number - 1].strip()[:120]})" if number <= len(lines) else ""


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
