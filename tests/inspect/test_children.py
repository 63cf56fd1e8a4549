"""Compiling in children: crashes, hangs and what they leave; and the cache of results."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="the package triton is not installed")

from sample_kernels import sample_attention, sample_copy, sample_matmul
from sample_launch import EXACT, TYPES

from andrea_bench.errors import EnvironmentUnfit
from andrea_bench.inspect import compile_facts, pipeline, toolchain
from andrea_bench.inspect.cache import AnalysisCache, request_key
from andrea_bench.inspect.children import Failure, Task, in_children
from andrea_bench.inspect.compile import Binary, Request
from andrea_bench.inspect.pipeline import Options

COPY = {"signature": "*fp32,*fp32,i32", "constexprs": {"block": 256}}


def kept(results: dict[int, Any], at: int, run: Callable[[], Any]) -> Task:
    """A task whose result goes into `results`."""
    return Task(run, lambda result: results.update({at: result}) or [])


def fail() -> None:
    raise ValueError("first line\nlast line")


def _wait_until_gone(pid: int) -> None:
    """Fails if the process still runs after ten seconds (a zombie does not run)."""
    deadline = time.monotonic() + 10
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_child_that_is_killed_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def hang() -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "half a binary").touch()
            (tmp_path / "begun").touch()
            time.sleep(600)

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    results: dict[int, Any] = {}
    in_children([kept(results, 0, hang)], time_limit_s=1.0)
    assert (tmp_path / "begun").exists() and results[0].status == "timeout"
    assert list(scratch.iterdir()) == []


def test_crash_hang_and_error_take_only_their_child(tmp_path: Path):
    assembler = tmp_path / "pid"

    def hang() -> None:
        # As an assembler that hangs: a process of the child's own.
        started = subprocess.Popen(["sleep", "600"])
        assembler.write_text(str(started.pid))
        started.wait()

    runs = [lambda: 1, os.abort, hang, fail, lambda: "x" * 2_000_000, lambda: os._exit(3)]
    results: dict[int, Any] = {}
    in_children([kept(results, at, run) for at, run in enumerate(runs)], jobs=2, time_limit_s=1.5)
    assert results[0] == 1
    assert results[1] == Failure(status="error", reason="the compiler crashed (SIGABRT)")
    assert results[2] == Failure(status="timeout", reason="the compiler took longer than 1.5 s")
    assert results[3] == Failure(status="error", reason="ValueError: last line")
    assert len(results[4]) == 2_000_000
    assert results[5] == Failure(status="error", reason="the compiler crashed (exit code 3)")
    assert sorted(results) == list(range(6))
    _wait_until_gone(int(assembler.read_text()))


def test_tasks_that_others_lead_to_come_first_and_name_their_tool():
    seen: list[Any] = []

    def lead_on(result: Any) -> list[Task]:
        seen.append(result)
        return [Task(os.abort, lambda found: seen.append(found) or [], tool="nvdisasm")] if result == 1 else []

    in_children([Task(lambda: 1, lead_on), Task(lambda: 2, lead_on)], jobs=1)
    assert seen == [1, Failure(status="error", reason="nvdisasm crashed (SIGABRT)"), 2]


class Cache:
    """What was put, in order."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def put(self, key: str, analysis: Any) -> None:
        self.kept.append(key)


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler whose binaries bear the name of the request's signature, and a reader that says how many it read
    together; the binary `bad` can't be read, and `broken` not compiled."""

    def compile_here(request: Request) -> Binary:
        name = request.signature["name"]
        if name == "broken":
            raise ValueError("not to be compiled")
        return Binary(name=name, target=request.target, ttir="", ttgir="", ptx="", log="", cubin=b"",
                      threads_per_block=128, shared_memory_bytes=0, tensor_memory_columns=0, seconds=0.0)  # fmt: skip

    def analyse(binaries: Sequence[Binary]) -> list[str]:
        if any(binary.name == "bad" for binary in binaries):
            raise ValueError("nothing in there")
        return [f"{binary.name}, read among {len(binaries)}" for binary in binaries]

    monkeypatch.setattr("andrea_bench.inspect.compile.compile_here", compile_here)
    monkeypatch.setattr(pipeline, "_analyse", analyse)
    monkeypatch.setattr(pipeline.toolchain, "warm_up", lambda targets: None)


def requests(*names: str, target: int = 89) -> dict[str, Request]:
    return {name: Request(None, {"name": name}, {}, 4, 1, target) for name in names}


def test_each_target_s_binaries_are_read_together_and_one_that_cannot_be_read_fails_alone(pretend: None):
    asked = requests("a", "bad", "b", "broken") | requests("c", target=90)
    cache, told = Cache(), []
    options = Options(jobs=2, cache=cache)  # type: ignore[arg-type]
    assert pipeline.analyses(asked, options, lambda *counts: told.append(counts)) == {
        "a": "a, read among 1", "bad": Failure(status="error", reason="ValueError: nothing in there"),
        "b": "b, read among 1", "broken": Failure(status="error", reason="ValueError: not to be compiled"),
        "c": "c, read among 1",
    }  # fmt: skip
    assert sorted(cache.kept) == ["a", "b", "c"]
    assert told == [(done, 5) for done in range(1, 6)]
    del asked["bad"]
    assert pipeline.analyses(asked, Options(), None)["b"] == "b, read among 2"


def test_what_was_read_before_an_interruption_is_kept(pretend: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pipeline, "GROUP", 2)
    cache = Cache()

    def interrupt(done: int, whole: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipeline.analyses(requests(*"abcdefgh"), Options(jobs=1, cache=cache), interrupt)  # type: ignore[arg-type]
    assert cache.kept == ["a", "b", "c", "d"]


def test_hanging_compiler_is_a_row(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("andrea_bench.inspect.compile.compile_here", lambda request: time.sleep(600))
    facts = compile_facts(sample_copy, gpu="rtx_4090", options=Options(time_limit_s=0.5), **COPY)
    assert (facts.status, facts.reason) == ("timeout", "the compiler took longer than 0.5 s")


def test_second_time_nothing_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    options = Options(cache=AnalysisCache(tmp_path))
    first = compile_facts(sample_copy, gpu="rtx_4090", options=options, **COPY)
    assert (first.status, first.cached) == ("ok", False)
    monkeypatch.setattr(pipeline, "in_children", lambda *a, **k: pytest.fail("compiled again"))
    again = compile_facts(sample_copy, gpu="rtx_4090", options=options, **COPY)
    # Another product of the same architecture is the same code.
    other = compile_facts(sample_copy, gpu="l4", options=options, **COPY)
    assert again.cached
    assert {**again.document(), "cached": False} == first.document()
    assert other.code_hash == first.code_hash


def test_cache_that_cannot_be_written_or_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    facts = compile_facts(sample_copy, gpu="rtx_4090", options=Options(cache=AnalysisCache(blocked)), **COPY)
    assert facts.status == "ok"
    assert capsys.readouterr().err.count("going on without") == 1
    options = Options(cache=AnalysisCache(tmp_path))
    compile_facts(sample_copy, gpu="rtx_4090", options=options, **COPY)
    (kept,) = (tmp_path / "inspect").glob("*.json")
    kept.write_text('{"cut off')
    again = compile_facts(sample_copy, gpu="rtx_4090", options=options, **COPY)
    assert (again.status, again.cached) == ("ok", False)
    assert json.loads(kept.read_text())["name"] == "sample_copy"


def test_key_holds_all_that_the_code_depends_on(monkeypatch: pytest.MonkeyPatch):
    types = dict(zip(sample_attention.arg_names[:6], TYPES.split(","), strict=True))

    def request(**changes: Any) -> Request:
        given: dict[str, Any] = {"function": sample_attention, "signature": types, "constexprs": EXACT, "num_warps": 4,
                                 "num_stages": 2, "target": 89, "divisible_by_16": ("q",)}  # fmt: skip
        return Request(**{**given, **changes})

    keys = [
        request_key(one)
        for one in (
            request(), request(function=sample_matmul), request(signature={**types, "q": "*fp16"}),
            request(num_warps=8),
            request(constexprs={**EXACT, "block_n": 64}), request(num_stages=3), request(target=90),
            request(divisible_by_16=("q", "k")),
        )
    ]  # fmt: skip
    monkeypatch.setattr(toolchain, "version_of", lambda tool: "another")
    keys.append(request_key(request()))
    assert len(set(keys)) == len(keys)
    monkeypatch.undo()
    assert request_key(request()) == keys[0]
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    assert request_key(request()) != keys[0]


def test_neither_torch_nor_driver(tmp_path: Path):
    """In a process where torch can't be imported, and where asking for the active driver ends it."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "sys.modules['torch'] = None\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from triton.runtime import driver\n"
        "type(driver).active = property(lambda self: sys.exit('asked the driver'))\n"
        "from sample_kernels import sample_copy\n"
        "from andrea_bench.inspect import compile_facts\n"
        "facts = compile_facts(sample_copy, gpu='b200', signature='*fp32,*fp32,i32', constexprs={'block': 128})\n"
        "print(facts.status, facts.reason)\n"
        "print('libcuda' in open('/proc/self/maps').read(), sys.modules['torch'])\n"
    )
    environment = {**os.environ, "ANDREA_BENCH_CACHE": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok")
    assert done.stdout.endswith("False None\n")


def test_missing_tools_are_said_in_one_line(monkeypatch: pytest.MonkeyPatch):
    from triton import knobs

    class NoAssembler:
        nvdisasm = knobs.nvidia.nvdisasm

        @property
        def ptxas(self) -> None:
            raise RuntimeError("Cannot find ptxas")

    toolchain.ptxas.cache_clear()
    monkeypatch.setattr(knobs, "nvidia", NoAssembler())
    try:
        with pytest.raises(EnvironmentUnfit, match="no ptxas"):
            compile_facts(sample_copy, gpu="rtx_4090", options=Options(), **COPY)
    finally:
        toolchain.ptxas.cache_clear()


def test_assembler_too_old_for_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    old = tmp_path / "ptxas"
    old.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "Cuda compilation tools, release 11.0, V11.0.194"; exit 0; fi\n'
        "echo \"ptxas fatal   : Value 'sm_89' is not defined for option 'gpu-name'\" >&2; exit 255\n"
    )
    old.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(old))
    facts = compile_facts(sample_copy, gpu="rtx_4090", options=Options(), **COPY)
    assert facts.status == "error"
    assert facts.reason == (
        "the assembler refused the code: ptxas fatal : Value 'sm_89' is not defined for option 'gpu-name' "
        f"({old} 11.0.194)"
    )


def test_interrupt_ends_the_children_too(tmp_path: Path):
    slow = tmp_path / "ptxas"
    slow.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "Cuda compilation tools, release 12.8, V12.8.93"; exit 0; fi\n'
        f"echo $$ > {tmp_path}/pid; exec sleep 600\n"
    )
    slow.chmod(0o755)
    module = f"{Path(__file__).parent / 'sample_kernels.py'}:sample_copy"
    command = [sys.executable, "-m", "andrea_bench", "inspect", "--gpu", "rtx_4090", "--module", module,
               "--signature", "*fp32,*fp32,i32", "--constexpr", "block=256", "--no-cache"]  # fmt: skip
    environment = {**os.environ, "TRITON_PTXAS_PATH": str(slow)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + 60
        while not (tmp_path / "pid").exists() and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)
    assert (running.returncode, said.strip()) == (130, "andrea-bench: interrupted")
    _wait_until_gone(int((tmp_path / "pid").read_text()))
