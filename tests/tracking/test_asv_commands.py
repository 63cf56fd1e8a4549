"""asv itself, run for real on what is installed here: check, one benchmark, and what our readers make of it."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import json5
import pytest

from andrea_bench.tracking.folder import is_tracked, machine_folder, read_side, result_files

ROOT = Path(__file__).parents[2]
MACHINE = "node 7/β"  # asv takes it for a path
pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="asv needs the git repository, not a bare tree")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with a machine file, made without a question being asked, and given a name as docs/asv.md
    says (`asv machine --machine NAME` would store the name alone)."""
    folder = tmp_path_factory.mktemp("home")
    assert asv(folder, "machine", "--yes").returncode == 0
    rename = next(line for line in (ROOT / "docs/asv.md").read_text().splitlines() if "sed -i" in line)
    command = rename.partition("&&")[2].replace("NAME", MACHINE)
    subprocess.run(command, shell=True, check=True, env={**os.environ, "HOME": str(folder)})
    return folder


def asv(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """asv in the repository, with its results in `home` instead."""
    settings = json5.loads((ROOT / "asv.conf.json").read_text())
    settings |= {"repo": str(ROOT), "benchmark_dir": str(ROOT / "benchmarks")}
    settings |= {name: str(home / name) for name in ("env_dir", "results_dir", "html_dir")}
    config = home / "asv.conf.json"
    config.write_text(json5.dumps(settings))
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": ""}
    command = [sys.executable, "-m", "asv", "--config", str(config), *arguments]
    return subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def platform_facts() -> dict[str, str]:
    system = platform.uname()
    return {"os": f"{system.system} {system.release}", "arch": system.machine, "num_cpu": str(os.cpu_count())}


def test_check_finds_no_fault(home: Path) -> None:
    done = asv(home, "check", "-E", f"existing:{sys.executable}")
    assert done.returncode == 0 and "No problems found" in done.stdout + done.stderr, done.stdout + done.stderr


def test_one_quick_benchmark_is_stored_and_read(home: Path) -> None:
    """The documented way for a machine without a package index. A kernel for GPUs is skipped, not failed."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    commit = head.stdout.strip()
    benchmark = r"output\.Output\.time_call\('(einsum|triton_output_projection)', 4, 64, 'float32'"
    options = ["--set-commit-hash", commit, "--quick", "--machine", MACHINE, "-b", benchmark]
    done = asv(home, "run", "-E", f"existing:{sys.executable}", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = home / "results_dir"
    (file,) = result_files(machine_folder(folder, MACHINE))
    assert is_tracked(file)
    results = read_side(Path(f"{folder}@{commit}"))
    assert (results.file, results.machine, results.commit) == (file, MACHINE, commit)
    # asv machine --yes found out what it runs on.
    assert results.machine_facts.items() >= platform_facts().items()
    status = {point.label(): point.status for point in results.points.values()}
    assert status["output.Output.time_call(einsum, 4, 64, float32)"] == "ok"
    ok = [point for point in results.points.values() if point.status == "ok"]
    assert all(0 < (point.value or 0) < 60 for point in ok)
    assert all(point.unit == "seconds" and dict(point.parameters)["head_dim"] == "64" for point in ok)
