"""Compiles Triton kernels for GPUs that are not there, each in a child process with a time limit.

A child is forked, so that any kernel can be compiled, wherever its source was defined; a compiler that
crashes or hangs takes only its child with it. Neither torch nor a driver is touched.
"""

import contextlib
import faulthandler
import io
import multiprocessing
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import msgspec

from andrea_bench.errors import EnvironmentUnfit
from andrea_bench.inspect import toolchain

WARP_SIZE = 32


@dataclass(frozen=True)
class Request:
    """One kernel to be compiled for one target.

    function: the `triton.jit` function. signature: argument -> Triton type ("*bf16", "i32"), without the
    constexprs. divisible_by_16: arguments whose value is a multiple of 16. target: 89 for sm_89.
    """

    function: Any
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    num_warps: int
    num_stages: int
    target: int
    divisible_by_16: tuple[str, ...] = ()


class Binary(msgspec.Struct, frozen=True, kw_only=True):
    """What the compiler made: the texts of its stages, the binary, and what is known beside them.

    shared_memory_bytes: dynamic, per block. tensor_memory_columns: 0 but on compute capability 10.0.
    log: what ptxas printed with -v. seconds: from source to binary, without the disassembly.
    """

    name: str
    ttir: str
    ttgir: str
    ptx: str
    sass: str
    log: str
    cubin: bytes
    threads_per_block: int
    shared_memory_bytes: int
    tensor_memory_columns: int
    seconds: float


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no binary: status `error` or `timeout`, and one line."""

    status: str
    reason: str


def compile_here(request: Request) -> Binary:
    """Compiles in this process. Raises what Triton raises.

    Triton's own cache is bypassed: what ptxas says must be read, and it is printed on compiling only.
    """
    toolchain.triton_module()
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = request.function.arg_names
    signature = {n: "constexpr" if n in request.constexprs else request.signature[n] for n in names}
    attributes = {(names.index(n),): [["tt.divisibility", 16]] for n in request.divisible_by_16}
    source = ASTSource(request.function, signature, dict(request.constexprs), attributes)
    printed = io.StringIO()
    started = time.perf_counter()
    with _fresh_triton_cache(), contextlib.redirect_stdout(printed):
        made = triton.compile(
            source,
            target=GPUTarget("cuda", request.target, WARP_SIZE),
            options={"num_warps": request.num_warps, "num_stages": request.num_stages},
        )
        stages = {stage: made.asm[stage] for stage in ("ttir", "ttgir", "ptx", "cubin")}
    seconds = time.perf_counter() - started
    return Binary(
        name=made.metadata.name,
        ttir=stages["ttir"],
        ttgir=stages["ttgir"],
        ptx=stages["ptx"],
        cubin=stages["cubin"],
        sass=disassemble(stages["cubin"]),
        log=printed.getvalue(),
        threads_per_block=made.metadata.num_warps * WARP_SIZE,
        shared_memory_bytes=made.metadata.shared,
        tensor_memory_columns=getattr(made.metadata, "tmem_size", None) or 0,
        seconds=seconds,
    )


@contextlib.contextmanager
def _fresh_triton_cache() -> Iterator[None]:
    """Triton writes what it compiles into a folder of ours that goes away, and prints ptxas' log."""
    from triton import knobs

    with tempfile.TemporaryDirectory(prefix="andrea_bench_") as folder, knobs.cache.scope(), knobs.nvidia.scope():
        knobs.cache.dir = folder
        knobs.nvidia.dump_ptxas_log = True
        yield


def disassemble(cubin: bytes) -> str:
    """What `nvdisasm -c` prints of a binary. Raises EnvironmentUnfit where it fails."""
    import subprocess

    with tempfile.NamedTemporaryFile(prefix="andrea_bench_", suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        # No dataflow analysis: it costs a third of the time and is not needed.
        done = subprocess.run(
            [toolchain.disassembler(), "-c", "-ndf", file.name], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise EnvironmentUnfit(f"nvdisasm failed: {_last_line(done.stderr) or done.returncode}")
    return done.stdout


@dataclass
class _Child:
    """A child that compiles: its process, its end of the pipe, when it must be done, where its stderr goes."""

    index: int
    process: Any
    pipe: Connection
    deadline: float
    errors: Path


def in_children(
    tasks: Sequence[Callable[[], Any]],
    *,
    jobs: int | None = None,
    time_limit_s: float = 120.0,
    done: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    """The results of `tasks`, in their order, each run in a child of its own, `jobs` at once (default: the
    cores that this process may use). A task that raises, crashes or takes longer than time_limit_s gives a
    Failure. `done` is called with (index, result) as they come in."""
    jobs = jobs or len(os.sched_getaffinity(0))
    results: list[Any] = [None] * len(tasks)
    waiting = list(enumerate(tasks))[::-1]
    running: list[_Child] = []
    with tempfile.TemporaryDirectory(prefix="andrea_bench_") as folder:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    index, task = waiting.pop()
                    running.append(_start(index, task, time_limit_s, Path(folder)))
                nearest = min(child.deadline for child in running)
                wait([child.pipe for child in running], timeout=max(0.0, nearest - time.monotonic()))
                for child in list(running):
                    if child.pipe.poll() or time.monotonic() >= child.deadline:
                        running.remove(child)
                        results[child.index] = _finish(child, time_limit_s)
                        if done:
                            done(child.index, results[child.index])
        finally:
            for child in running:
                _kill(child)
    return results


def _start(index: int, task: Callable[[], Any], time_limit_s: float, folder: Path) -> _Child:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    errors = folder / f"{index}.txt"
    process = context.Process(target=_child_main, args=(task, theirs, errors), daemon=True)
    process.start()
    theirs.close()
    return _Child(index, process, ours, time.monotonic() + time_limit_s, errors)


def _child_main(task: Callable[[], Any], pipe: Connection, errors: Path) -> None:
    faulthandler.disable()  # a crash is told by the parent, in one line
    # A group of its own, so that a time limit also ends the assembler that hangs.
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with errors.open("wb") as file:
        os.dup2(file.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        pipe.send(task())
    except BaseException as error:
        pipe.send(Failure(status="error", reason=_one_line(error)))
    finally:
        pipe.close()
        os._exit(0)


def _finish(child: _Child, time_limit_s: float) -> Any:
    try:
        if not child.pipe.poll():
            return Failure(status="timeout", reason=f"the compiler took longer than {time_limit_s:g} s")
        return child.pipe.recv()
    except EOFError:
        child.process.join()
        code = child.process.exitcode or 0
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        said = _last_line(child.errors.read_text(errors="replace")) if child.errors.exists() else ""
        return Failure(status="error", reason=f"the compiler crashed ({cause}){': ' + said if said else ''}")
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
    return f"{type(error).__name__}: {' '.join(str(cause).split())[:300]}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
