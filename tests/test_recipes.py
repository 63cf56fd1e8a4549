"""CONTRIBUTING.md's recipes, done: adding a kernel, a suite or a GPU touches one place."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the packages, to be imported instead of the installed ones."""
    for name in ("andrea_bench", "kernels"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def bench(tree: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "andrea_bench", *arguments],
        cwd=tree, env={"PYTHONPATH": f"{tree}:{tree / 'kernels'}", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def recipe(number: int) -> str:
    """The code of the recipe, as it stands in CONTRIBUTING.md."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)[number]


def test_a_kernel_is_one_file_and_is_measured(tree: Path) -> None:
    file = tree / "kernels" / "andrea_kernels" / "mine.py"
    file.write_text(recipe(0))
    assert "my_attention" in bench(tree, "list", "kernels")
    sizes = ["-a", "n_head=2", "-a", "head_dim=16", "-a", "seq_len=32"]
    out = bench(tree, "sweep", "attention", "--kernel", f"{file}:my_attention", *sizes, "--fake-clock", "--out", "run")
    assert "my_attention" in out
    assert "wrong" not in out


def test_a_suite_is_one_file(tree: Path) -> None:
    (tree / "andrea_bench" / "suites" / "mine.py").write_text(f'"""A question."""\n\n{recipe(1)}')
    assert "mine" in bench(tree, "list", "suites")
    assert "mine" in bench(tree, "plan", "mine")
    (tree / "benchmarks").mkdir()
    (tree / "benchmarks" / "mine.py").write_text(recipe(2))
    code = "from benchmarks.mine import Mine; print(Mine.suite, [n for n in dir(Mine) if n.startswith('time_')])"
    paths = {"PYTHONPATH": f"{tree}:{tree / 'kernels'}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, env=paths, capture_output=True, text=True)
    assert done.stdout.startswith("mine ['time_"), done.stderr


def test_a_gpu_is_one_file(tree: Path) -> None:
    catalogue = tree / "andrea_bench" / "hardware" / "catalogue"
    text = (catalogue / "rtx_4090.toml").read_text()
    (catalogue / "rtx_4099.toml").write_text(text.replace("4090", "4099"))
    assert "rtx_4099" in bench(tree, "list", "gpus")
