"""README's parts on `inspect`: what it prints, by the compilers that constraints.txt names, and the gate of a
user's own kernel, test and workflow, run in a repository that isn't this one."""

import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from andrea_bench.cli.main import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- inspect:begin -->\n```\n\$ andrea-bench (.*?)\n(.*?)```\n<!-- inspect:end -->", re.DOTALL)
MY_KERNELS = """\
import triton
import triton.language as tl


@triton.jit
def my_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * 8 * BLOCK + tl.arange(0, 8 * BLOCK)
    tl.store(y + at, tl.load(x + at) * 2)
"""


def pinned(package: str) -> str | None:
    """The version that constraints.txt names."""
    found = re.search(rf"^{package}==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return found and found[1]


def test_readme_shows_what_inspect_prints(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="the package triton is not installed")
    if version("triton") != pinned("triton"):
        pytest.skip("README's figures are of the Triton that constraints.txt names")
    monkeypatch.setenv("COLUMNS", "119")
    ((command, text),) = BLOCK.findall(README)
    assert main(shlex.split(command)) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.strip("\n").splitlines()]
    assert text.rstrip("\n").splitlines() == printed, f"print it anew: COLUMNS=119 andrea-bench {command}"


def steps() -> list[dict[str, Any]]:
    """What the workflow of README runs."""
    yaml = pytest.importorskip("yaml", reason="workflows are YAML")
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (job,) = yaml.safe_load(block)["jobs"].values()
    return [step for step in job["steps"] if "run" in step]


def test_workflow_installs_what_is_pinned_here() -> None:
    from packaging.requirements import Requirement

    words = [shlex.split(step["run"]) for step in steps() if step["run"].startswith("pip install ")]
    packages = [word for line in words for word in line[2:]]
    found = {one.name: one for one in map(Requirement, packages)}
    assert set(found) == {"torch", "triton", "pytest", "andrea-bench"}
    assert [str(found[name].specifier) for name in ("torch", "triton")] == [
        f"=={pinned(name)}" for name in ("torch", "triton")
    ]
    assert str(found["andrea-bench"].url).startswith("git+https://")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A user's: a kernel, and README's test of it. Beside it the commands that `pip install` would have put there."""
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "compile_facts" in block]
    here = tmp_path / "mine"
    here.mkdir()
    (here / "my_kernels.py").write_text(MY_KERNELS)
    (here / "test_my_kernels.py").write_text(example)
    (tmp_path / "bin").mkdir()
    for name, module in (("andrea-bench", "andrea_bench"), ("pytest", "pytest -p no:cacheprovider")):
        command = tmp_path / "bin" / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m {module} "$@"\n')
        command.chmod(0o755)
    return here


def ran(repository: Path, script: str) -> "subprocess.CompletedProcess[str]":
    """A step, as a runner runs it."""
    environment = os.environ | {
        "PATH": f"{repository.parent / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}:{ROOT / 'kernels'}",
        "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(repository.parent / "summary.md"),
    }  # fmt: skip
    command = ["bash", "-e", "-c", script]
    return subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)


def test_gate_of_a_kernel_of_ones_own(repository: Path) -> None:
    pytest.importorskip("triton", reason="the package triton is not installed")
    tests, check, summary = [step for step in steps() if not step["run"].startswith("pip ")]
    (save,) = re.findall(r"```\n(andrea-bench inspect --module .*?)```", README, re.DOTALL)
    saved = ran(repository, save)
    assert saved.returncode == 0, saved.stderr
    tested = ran(repository, tests["run"])
    assert "5 passed" in tested.stdout, tested.stdout
    checked = ran(repository, check["run"])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "verdict: same (3 entries in the baseline, 3 now)" in checked.stdout

    # Rows that lie n elements apart may start anywhere: loads of 16 bytes become loads of 2.
    (repository / "my_kernels.py").write_text(MY_KERNELS.replace("* 8 * BLOCK +", "* n +"))
    checked = ran(repository, check["run"])
    assert checked.returncode == 1
    told = [line for line in checked.stdout.splitlines() if "error title=" in line]
    assert len(told) == 3
    assert "my_kernel on b200: global_load_bytes: 100 %25 of the loaded bytes come at most 2 at a time" in told[-1]
    assert summary["if"].startswith("always()")  # a failure is what is to be read
    assert ran(repository, summary["run"]).returncode == 0
    assert "| worse | my\\_kernel on h200\\_sxm |" in (repository.parent / "summary.md").read_text()
