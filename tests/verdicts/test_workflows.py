"""The example workflows of docs/gating.md: every command parses against the CLI, and the two that measure run."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from andrea_bench.cli.main import andrea_bench_command
from andrea_bench.verdicts import parse_percent

yaml = pytest.importorskip("yaml", reason="workflows are YAML")
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "gating.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)
WORKFLOWS: dict[str, dict[str, Any]] = {
    block.splitlines()[0].rpartition("/")[2]: yaml.safe_load(block) for block in BLOCKS
}
SMALL = "-a seq_len=16 -a n_head=2 -a head_dim=16"


def scripts(workflow: dict[str, Any]) -> list[str]:
    """What its steps run, in order, with the base branch filled in."""
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    return [step["run"].replace("${{ github.base_ref }}", "main") for step in steps if "run" in step]


def commands(script: str) -> list[list[str]]:
    """The arguments of each call of andrea-bench in a script."""
    found = []
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        words = words[: words.index(">")] if ">" in words else words
        for i, word in enumerate(words):
            if word == ".venv/bin/andrea-bench":
                found.append(words[i + 1 :])
            elif words[i : i + 3] == [".venv/bin/python", "-m", "andrea_bench"]:
                found.append(words[i + 3 :])
    return found


def parsed(arguments: list[str]) -> click.Context:
    """What click makes of a command line, without running it. Raises click's errors."""
    group = click.Context(andrea_bench_command)
    command = andrea_bench_command.get_command(group, arguments[0])
    assert command is not None, f"no verb {arguments[0]}"
    return command.make_context(arguments[0], arguments[1:], parent=group)


def test_the_workflows_are_those_that_were_asked_for() -> None:
    verbs = {
        name: [c[0] for script in scripts(workflow) for c in commands(script)] for name, workflow in WORKFLOWS.items()
    }
    assert verbs == {"structure.yml": ["inspect"], "ab.yml": ["ab"], "gpu.yml": ["sweep", "sweep", "gate"]}


def test_what_the_structural_gate_wrote_is_posted() -> None:
    (_, check, post) = scripts(WORKFLOWS["structure.yml"])
    (arguments,) = commands(check)
    written = parsed(arguments).params["markdown_file"]
    assert written is not None and shlex.split(post)[:2] == ["cat", str(written)]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_command_parses(name: str) -> None:
    for script in scripts(WORKFLOWS[name]):
        for arguments in commands(script):
            found = parsed(arguments).params
            if "max_slowdown" in found:
                assert parse_percent(found["max_slowdown"]) > 0
            if found.get("check"):
                assert (ROOT / found["check"]).is_file()


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_a_workflow_needs_is_there(name: str) -> None:
    """Its targets of make, and the base revision where it is compared with."""
    (job,) = WORKFLOWS[name]["jobs"].values()
    steps = job["steps"]
    makefile = (ROOT / "Makefile").read_text()
    for step in steps:
        for target in re.findall(r"^make (\S+)", step.get("run", ""), re.M):
            assert f"\n{target}:" in makefile
    if "base_ref" in str(steps):
        assert steps[0]["uses"].startswith("actions/checkout@") and steps[0]["with"] == {"fetch-depth": 0}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a runner has: a clone of a repository, on a branch with one commit more than origin/main."""

    def git(folder: Path, *arguments: str) -> None:
        name = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)

    origin, here = tmp_path / "origin", tmp_path / "here"
    for name in ("andrea_bench", "kernels"):
        shutil.copytree(ROOT / name, origin / name, ignore=shutil.ignore_patterns("__pycache__"))
    git(origin, "init", "-q", "-b", "main")
    git(origin, "add", "-A")
    git(origin, "commit", "-q", "-m", "first")
    git(tmp_path, "clone", "-q", str(origin), str(here))
    (here / "andrea_bench" / "new.py").write_text('"""New."""\n')
    git(here, "add", "-A")
    git(here, "commit", "-q", "-m", "second")
    # Its virtual environment: the interpreter that runs this, which imports the checkout's own packages.
    (here / ".venv" / "bin").mkdir(parents=True)
    for name, call in (("python", ""), ("andrea-bench", "-m andrea_bench")):
        script = f'#!/bin/sh\nexport PYTHONPATH="${{PYTHONPATH:-{here}:{here}/kernels}}"\n'
        (here / ".venv" / "bin" / name).write_text(f'{script}exec "{sys.executable}" {call} "$@"\n')
        (here / ".venv" / "bin" / name).chmod(0o755)
    return here


def ran(checkout: Path, script: str) -> "subprocess.CompletedProcess[str]":
    summary = checkout.parent / "summary.md"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=checkout, env={**kept, "GITHUB_STEP_SUMMARY": str(summary)},
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip


def test_the_workflow_of_ab_runs(checkout: Path) -> None:
    """As it stands, but for one suite, smaller cells and a budget for one pair, which can't decide and passes."""
    setup, ab, summary = scripts(WORKFLOWS["ab.yml"])
    assert setup == "make setup"
    small = ab.replace("projection attention -a seq_len=256", f"projection {SMALL}").replace("120s", "1s")
    assert small.count(SMALL) == 1 and "--budget 1s" in small
    done = ran(checkout, small)
    assert done.returncode == 0, done.stderr
    assert (checkout / "verdict.xml").is_file()
    assert ran(checkout, summary).returncode == 0
    assert (checkout.parent / "summary.md").read_text().startswith("**inconclusive")


def test_the_workflow_of_a_gpu_runs_again_and_again(checkout: Path) -> None:
    """On a CPU, with small cells of one process, twice in one checkout, as on a runner of one's own."""
    setup, head, base, gate = scripts(WORKFLOWS["gpu.yml"])
    assert setup == "make setup"
    for _ in range(2):
        for script in (head, base):
            done = ran(checkout, script.replace("attention --processes 8", f"projection --device cpu {SMALL}"))
            assert done.returncode == 0, done.stderr
        done = ran(checkout, gate)
        # One process a side decides nothing; that both were compared is what counts here.
        assert done.returncode == 3, done.stderr
        assert '"only_base":[]' in (checkout / "verdict.json").read_text().replace(" ", "")
        # What the next checkout removes: all that is not tracked.
        for name in ("base-tree", "base", "head"):
            shutil.rmtree(checkout / name)
