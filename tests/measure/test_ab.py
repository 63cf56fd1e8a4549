"""ab with real worktrees and processes: a slowdown is found, nothing is left behind, Ctrl-C included."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
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
    after = before.replace("run=lambda: x @ w_qkv,", "run=lambda: [x @ w_qkv for _ in range(8)][-1],")
    assert after != before
    file.write_text(after)
    git(folder, "commit", "-q", "-a", "-m", "slower")
    return folder


def start(repository: Path, scratch: Path, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "andrea_bench", "ab", *CELLS, "--base", "HEAD~1", "--json", *options],
        cwd=repository, env={**os.environ, "TMPDIR": str(scratch), "PYTHONSAFEPATH": "1"}, text=True,
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
    assert any("source of fused_qkv changed" in cause for cause in cells["fused_qkv"]["likely_causes"])
    assert cells["fused_qkv"]["blocks_base"] == document["looks"][0]["pairs"] == 1
    assert (tmp_path / "runs" / "base" / "records.jsonl").is_file()
    assert left_behind(repository, scratch) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_nothing_behind(repository: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = start(repository, tmp_path)
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not any(tmp_path.glob("andrea-bench-ab-*/base/andrea_bench/__init__.py")):
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert left_behind(repository, tmp_path) == []
    children = subprocess.run(["ps", "-A", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in children
