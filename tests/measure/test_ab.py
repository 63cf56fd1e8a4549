"""ab with real worktrees and processes: a slowdown is found, nothing is left behind, Ctrl-C included."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
FAST = "run=lambda: x @ w_qkv,"
SLOW = "run=lambda: [x @ w_qkv for _ in range(8)][-1],"
CELLS = ["projection", "-a", "seq_len=16", "-a", "n_head=2", "-a", "head_dim=16", "--kernel", "fused_qkv,per_head_loop"]


def git(folder: Path, *arguments: str) -> str:
    name = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This project's packages in a repository of their own; in its second commit fused_qkv multiplies twice."""
    folder = tmp_path_factory.mktemp("of two revisions") / "repo"
    folder.mkdir()
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "andrea_bench", folder / "andrea_bench", ignore=ignore)
    shutil.copytree(ROOT / "kernels", folder / "kernels", ignore=ignore)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    file = folder / "kernels" / "andrea_kernels" / "torch_projection.py"
    before = file.read_text()
    after = before.replace(FAST, SLOW)
    assert after != before
    file.write_text(after)
    git(folder, "commit", "-q", "-a", "-m", "slower")
    return folder


@contextlib.contextmanager
def edited(repository: Path, name: str, before: str, after: str, more: str = "") -> Iterator[None]:
    """One more commit, gone in the end, with a file's text changed and more added."""
    start, file = git(repository, "rev-parse", "HEAD").strip(), repository / name
    text = file.read_text()
    assert text.count(before) >= 1
    file.write_text(text.replace(before, after) + more)
    git(repository, "commit", "-q", "-a", "-m", "edited")
    try:
        yield
    finally:
        git(repository, "reset", "-q", "--hard", start)


def start(repository: Path, scratch: Path, *options: str, cells: list[str] = CELLS) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "andrea_bench", "ab", *cells, "--json", "--base", "HEAD~1", *options],
        cwd=repository, env={**os.environ, "TMPDIR": str(scratch), "PYTHONSAFEPATH": "1"}, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # whoever runs the tests may ignore it
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def left_behind(repository: Path, scratch: Path) -> list[str]:
    return git(repository, "worktree", "list").splitlines()[1:] + [p.name for p in scratch.glob("andrea-bench*")]


def test_two_revisions_are_measured_and_judged(repository: Path, tmp_path: Path) -> None:
    """One pair (the budget allows no more) decides nothing, but shows which side is slower, and why."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = start(repository, scratch, "--head", "HEAD", "--budget", "1s", "--out", str(tmp_path / "runs"))
    out, err = process.communicate(timeout=200)
    assert process.returncode == 3, err
    document = json.loads(out)
    jsonschema.validate(document, json.loads((ROOT / "andrea_bench/schema/verdict.schema.json").read_text()))
    cells = {cell["kernel"]: cell for cell in document["cells"]}
    assert cells["fused_qkv"]["ratio"] > 1.5
    assert any("source file of fused_qkv changed" in cause for cause in cells["fused_qkv"]["likely_causes"])
    assert cells["fused_qkv"]["blocks_base"] == document["looks"][0]["pairs"] == 1
    assert (tmp_path / "runs" / "base" / "records.jsonl").is_file()
    assert left_behind(repository, scratch) == []


def processes_of(scratch: Path) -> list[str]:
    """Command lines of the processes that work with something under a folder: ab and its measuring processes."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(scratch).encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
    return found


def wait_for(scratch: Path, pattern: str) -> None:
    deadline = time.monotonic() + 150
    while not any(scratch.glob(pattern)):
        assert time.monotonic() < deadline, f"no {pattern}"
        time.sleep(0.05)


def ends_clean(process: "subprocess.Popen[str]", repository: Path, scratch: Path) -> None:
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert left_behind(repository, scratch) == []
    assert processes_of(scratch) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_planning_leaves_nothing_behind(repository: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = start(repository, tmp_path)
    wait_for(tmp_path, "andrea-bench-ab-*/base/andrea_bench/__init__.py")
    time.sleep(0.5)
    assert processes_of(tmp_path)
    process.send_signal(number)
    ends_clean(process, repository, tmp_path)


# A kernel that shows by a file that a turn is on (the check calls it a few times), and stays in it.
IN_A_TURN = """
calls = []


def stays(x, w_qkv):
    import os, pathlib, time

    calls.append(0)
    if len(calls) > 12:
        pathlib.Path(os.environ["TMPDIR"], f"in-a-turn-{os.getpid()}").touch()
        time.sleep(100)
    return x @ w_qkv
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_in_a_turn_leaves_nothing_behind(repository: Path, tmp_path: Path, number: signal.Signals) -> None:
    file = "kernels/andrea_kernels/torch_projection.py"
    with edited(repository, file, SLOW, "run=lambda: stays(x, w_qkv),", IN_A_TURN):
        process = start(repository, tmp_path, "--head", "HEAD", "--out", str(tmp_path / "runs"))
        wait_for(tmp_path, "in-a-turn-*")
        assert len([line for line in processes_of(tmp_path) if "measure.worker" in line]) == 2
        process.send_signal(number)
        ends_clean(process, repository, tmp_path)
    # A pair that was cut off counts for nothing, so that there is nothing to store.
    assert not (tmp_path / "runs").exists()


WORKER, TASK = "andrea_bench/measure/worker.py", "andrea_bench/measure/task.py"


@pytest.mark.parametrize(
    ("side", "file", "before", "after", "says"),
    [
        ("base", WORKER, "device, threads, pulse = sys.argv[1], ", "(device,) = sys.argv[1:]; threads, pulse = ",
         "ValueError: too many values to unpack"),
        ("head", TASK, "    suite: str\n", "    suite: str\n    turns: int\n", "missing required field `turns`"),
        ("base", WORKER, "records=records)", "records={})", "Expected `array`, got `object`"),
        ("base", WORKER, "sampling=SAMPLING, ", "", "it takes its samples in another way, so that its times can't be"),
        ("head", WORKER, 'event="records"', 'kind="records"', "KeyError: 'event'"),
    ],
)  # fmt: skip
def test_a_revision_with_another_worker_is_one_line(
    repository: Path, tmp_path: Path, side: str, file: str, before: str, after: str, says: str
) -> None:
    """Arguments, Tasks or answers that this version doesn't know: what, where, what next; and nothing measured."""
    with edited(repository, file, before, after):
        revisions = ("HEAD", "HEAD~1") if side == "base" else ("HEAD~1", "HEAD")
        process = start(repository, tmp_path, "--base", revisions[0], "--head", revisions[1])
        out, err = process.communicate(timeout=100)
    assert process.returncode == 4 and out == "", err
    last = err.splitlines()[-1]
    assert "Traceback" not in err and says in last
    assert last.startswith(f"andrea-bench: {side} HEAD: its measuring process can't be used")
    assert "name another revision, or `sweep` each with its own code and let `gate` compare the Runs" in last
    assert left_behind(repository, tmp_path) == [] and processes_of(tmp_path) == []


def test_a_plan_of_another_form_is_one_line(repository: Path, tmp_path: Path) -> None:
    with edited(repository, "andrea_bench/cli/plan.py", '"cells"', '"rows"'):
        process = start(repository, tmp_path, "--base", "HEAD")
        out, err = process.communicate(timeout=100)
    assert process.returncode == 2 and out == "" and len(err.splitlines()) == 1
    assert err.startswith("andrea-bench: base HEAD: its `plan --json` can't be read")
    assert left_behind(repository, tmp_path) == []


# A measuring process without torch, which starts in no time: it times as much work as its revision says.
WORK = 1
QUICK_WORKER = f"""
import os
import sys
import time

import msgspec

from andrea_bench.measure.task import SAMPLING, Task, empty_record

WORK = {WORK}


def time_us():
    began = time.perf_counter_ns()
    for _ in range(WORK):
        sorted(range(5000, 0, -1))
    return (time.perf_counter_ns() - began) / 1e3


answers = os.fdopen(os.dup(1), "wb", buffering=0)
answers.write(msgspec.json.encode({{"event": "ready", "sampling": SAMPLING}}) + b"\\n")
for line in sys.stdin.buffer:
    task = msgspec.json.decode(line, type=Task)
    records = [empty_record(task, op, name) for op, name in task.members]
    for record in records:
        record.status, record.timing_mode, record.cache = "ok", "host_wall", "warm"
        record.samples_us = [time_us() for _ in range(3)]
        record.order, record.block, record.round = [0, 1, 2], [task.block] * 3, [0, 1, 2]
        record.counters = {{"threads": int(sys.argv[2])}}
    answers.write(msgspec.json.encode({{"event": "records", "records": records}}) + b"\\n")
"""


@pytest.mark.parametrize(("base", "exit_code", "verdict"), [("HEAD", 0, "same"), ("HEAD~1", 1, "slower")])
def test_it_stops_by_itself_when_all_is_settled(
    repository: Path, tmp_path: Path, base: str, exit_code: int, verdict: str
) -> None:
    """The same code on both sides, or forty times the work in head, and an allowance that no load of the machine
    fills or hides. One cell can be decided by seven pairs: 2 / 2**7 is below 5 % / 3."""
    worker = repository / WORKER
    with edited(repository, WORKER, worker.read_text(), QUICK_WORKER), edited(repository, WORKER, "K = 1", "K = 40"):
        options = ["--base", base, "--head", "HEAD", "--max-slowdown", "400%", "--budget", "10min", "-a", "threads=2"]
        options += ["--out", str(tmp_path / "runs"), "--junit", str(tmp_path / "ab.xml")]
        process = start(repository, tmp_path, *options, cells=[*CELLS[:-1], "per_head_loop"])
        out, err = process.communicate(timeout=200)
    assert process.returncode == exit_code, err
    document = json.loads(out)
    assert [cell["verdict"] for cell in document["cells"]] == [document["verdict"]] == [verdict]
    assert document["looks"][0]["pairs"] == 7 and document["looks"][-1]["settled"]
    assert ('failures="0"' in (tmp_path / "ab.xml").read_text()) == (exit_code == 0)
    for side in ("base", "head"):
        head = json.loads((tmp_path / "runs" / side / "run.json").read_text())
        assert head["complete"] and head["protocol"]["threads"] == 2
        (record,) = map(json.loads, (tmp_path / "runs" / side / "records.jsonl").read_text().splitlines())
        assert record["device"] == "cpu:threads=2" and record["counters"]["threads"] == 2
        assert max(record["block"]) + 1 == document["looks"][-1]["pairs"]
    assert left_behind(repository, tmp_path) == [] and processes_of(tmp_path) == []
