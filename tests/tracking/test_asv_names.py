"""Machines and environments of any name, in files that asv itself wrote."""

import datetime
from pathlib import Path

import pytest
from asv.machine import Machine
from asv.results import Results, get_filename
from asv.runner import BenchmarkResult

from andrea_bench.cli.main import main
from andrea_bench.errors import BadInput
from andrea_bench.tracking.folder import machine_folder, read_side, result_files, split_revision
from andrea_bench.tracking.results import read_results
from andrea_bench.tracking.series import read_history

COMMITS = ("1" * 40, "2" * 40)
LONG = "virtualenv-py3.11-" + "-".join(f"package{i}1.{i}" for i in range(30))


def measure(folder: Path, machine: str, *, env: str = "venv", commit: str = COMMITS[0], hour: int = 0) -> Path:
    """Store one value as asv does; returns the file."""
    described = Machine()
    described.__dict__.update({"machine": machine, "os": "Linux", "arch": "x86_64", "cpu": "c", "num_cpu": "2"})
    described.save(str(folder))
    (folder / "benchmarks.json").write_text(
        '{"a.time_it": {"type": "time", "unit": "seconds", "param_names": ["kernel"]}, "version": 2}'
    )
    date = datetime.datetime(2026, 1, 1, hour, tzinfo=datetime.UTC)
    stored = Results({"machine": machine}, {}, commit, int(date.timestamp() * 1000), "3.11", env, {})
    benchmark = {"name": "a.time_it", "version": "1", "params": [["'eager'"]]}
    stored.add_result(benchmark, BenchmarkResult([0.5], [[0.5]], [1], 0, "", None))
    stored.save(str(folder))
    return folder / get_filename(machine, commit, env)


@pytest.fixture(autouse=True)
def _outside_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))


@pytest.mark.parametrize(
    "machine", ["node 7/β", "gpu-node-a.example", "3d2260935502", "Büro-PC 1", "a/b/c", "node@7", "[a]*", "-x", "a\nb"]
)
def test_a_machine_of_any_name(tmp_path: Path, machine: str) -> None:
    file = measure(tmp_path / "results", machine)
    measure(tmp_path / "results", machine, commit=COMMITS[1], hour=1)
    results = read_results(file)
    assert results.machine == machine
    ((_, parameters),) = results.points  # the names stand in benchmarks.json, one folder up or more
    assert parameters == (("kernel", "eager"),)
    assert read_history(tmp_path / "results").commits == COMMITS
    assert read_history(tmp_path / "results", machine=machine).machine == machine
    assert read_side(Path(f"results/{machine}@11111111")).commit == COMMITS[0]


def test_machines_in_folders_of_others_are_told_apart(tmp_path: Path) -> None:
    measure(tmp_path, "node")
    measure(tmp_path, "node/7", commit=COMMITS[1])
    with pytest.raises(BadInput, match=r"2 machines \(node, node/7\)"):
        machine_folder(tmp_path, None)
    assert [f.name for f in result_files(machine_folder(tmp_path, "node"))] == ["11111111-venv.json"]
    assert read_history(tmp_path, machine="node/7").commits == (COMMITS[1],)


def test_a_file_moved_to_a_folder_of_another_name(tmp_path: Path) -> None:
    file = measure(tmp_path, "node 7/β")
    measure(tmp_path, "β")
    moved = file.rename(tmp_path / "β" / "33333333-venv.json")
    with pytest.raises(BadInput, match="measured on machine node 7/β, but lies among the results of β"):
        read_results(moved)


def test_a_name_too_long_for_a_file_is_hashed_and_kept_whole_inside(tmp_path: Path) -> None:
    """Two environments that differ only at the end are two files."""
    for tail in ("a", "b"):
        file = measure(tmp_path, "node", env=LONG + tail)
        assert file.name.startswith("11111111-env-") and len(file.name) < 60
    assert len(result_files(tmp_path / "node")) == 2
    assert read_history(tmp_path, environment=LONG + "a").environment == LONG + "a"
    with pytest.raises(BadInput, match="2 environments; name one file: 11111111-env-"):
        read_side(tmp_path / "node@11111111")


def test_an_at_sign_may_stand_in_a_machine_and_in_a_revision(tmp_path: Path) -> None:
    measure(tmp_path, "node")
    measure(tmp_path, "node@7")
    assert split_revision(Path("node@7@HEAD")) == (Path("node@7"), "HEAD")
    assert split_revision(Path("node@7")) == (Path("node@7"), None)
    assert split_revision(Path("node@7@HEAD@{1}")) == (Path("node@7"), "HEAD@{1}")
    assert split_revision(Path("none@HEAD")) == (Path("none"), "HEAD")


def test_an_odd_name_in_a_line_of_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure(tmp_path, "[red]node/β")
    measure(tmp_path, "[red]node/β", commit=COMMITS[1], hour=1)
    assert main(["history", "--results", "."]) == 0
    assert "[red]node/β, venv: 2 commits, 11111111 to 22222222" in capsys.readouterr().out
    assert main(["history", "--results", ".", "--machine", "node"]) == 2
    assert "no machine 'node'; it has [red]node/β" in capsys.readouterr().err
