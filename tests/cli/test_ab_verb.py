"""The verb ab without measuring: what it asks for, what it checks first, and that no verdict is lost."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from andrea_bench import revisions, trial
from andrea_bench.calibration import default_file
from andrea_bench.cli.main import main
from andrea_bench.errors import BadInput
from andrea_bench.verdicts import Document, Policy

AB = ["ab", "projection", "--base", "main"]


class MadeUpTrial:
    """A trial that is over at once and says slower."""

    made: list["MadeUpTrial"]  # since the test began
    interrupted_after: int | None = None  # pairs
    pairs = 0

    def __init__(self, sides: Any, arguments: list[str], **options: Any) -> None:
        self.arguments, self.options = arguments, options
        self.head = SimpleNamespace(head=SimpleNamespace(environment={}))
        self.stored: list[tuple[Path, bool]] = []
        MadeUpTrial.made.append(self)

    def run(self, deadline: float, report: Any) -> Document:
        if self.interrupted_after is not None:
            self.pairs = self.interrupted_after
            raise KeyboardInterrupt
        return Document(verdict="slower", exit_code=1, reason="1 slower", policy=Policy())

    def store(self, folder: Path, *, complete: bool = True) -> None:
        self.stored.append((folder, complete))


@pytest.fixture(autouse=True)
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[MadeUpTrial]:
    """No worktree and no process; a folder of its own with a file, a folder and a Run in it."""

    @contextlib.contextmanager
    def open_revisions(base: str, head: str | None) -> Iterator[Any]:
        yield SimpleNamespace(
            repository=Path("here"), base=SimpleNamespace(label=base), head=SimpleNamespace(label=head)
        )

    monkeypatch.setattr(MadeUpTrial, "made", [], raising=False)
    monkeypatch.setattr(revisions, "open_revisions", open_revisions)
    monkeypatch.setattr(trial, "RevisionTrial", MadeUpTrial)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("kept")
    Path("folder").mkdir()
    Path("runs/head").mkdir(parents=True)
    Path("runs/head/run.json").write_text("{}")
    return MadeUpTrial


def everything() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*"))


@pytest.mark.parametrize(
    ("option", "target", "says"),
    [
        ("--markdown", "nowhere/x.md", "nowhere/x.md: can't be written: No such file or directory"),
        ("--junit", "nowhere/x.xml", "nowhere/x.xml: can't be written: No such file or directory"),
        ("--markdown", "file/x.md", "file/x.md: can't be written: Not a directory"),
        ("--junit", "folder", "folder: is no file's name here; name a file"),
        ("--markdown", "-", "-: is no file's name here; name a file"),
        ("--junit", "x" * 250 + ".xml", "can't be written: File name too long"),
        ("--out", "runs", "runs/head: already holds a Run; name another folder with --out"),
        ("--out", "file", "file/base: can't be written: Not a directory"),
        ("--out", "file/far/below", "file/far/below/base: can't be written: Not a directory"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], option: str, target: str, says: str
) -> None:
    before = everything()
    assert main([*AB, option, target]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1 and says in captured.err
    assert MadeUpTrial.made == [] and everything() == before


def test_a_broken_calibration_withholds_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    file = default_file()
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert main([*AB, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [f"{file}: is no calibration" in warning for warning in document["warnings"]] == [True]


@pytest.mark.parametrize(("budget", "limit"), [("120s", 60.0), ("6s", 30.0), ("10min", 120.0)])
def test_a_kernel_that_hangs_leaves_time_for_the_others(budget: str, limit: float) -> None:
    assert main([*AB, "--budget", budget]) == 1
    assert MadeUpTrial.made[0].options["protocol"].kernel_limit_s == limit


def test_one_file_is_not_written_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*AB, "--markdown", "x", "--junit", "folder/../x"]) == 2
    assert "folder/../x: is asked for as --markdown and as --junit" in capsys.readouterr().err
    assert MadeUpTrial.made == [] and not Path("x").exists()


def test_targets_that_can_be_written_are_left_as_they_are_until_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything()
    seen = []

    def run(self: MadeUpTrial, deadline: float, report: Any) -> Document:
        seen.append(everything())
        return Document(verdict="same", exit_code=0, reason="1 same", policy=Policy())

    monkeypatch.setattr(MadeUpTrial, "run", run)
    assert main([*AB, "--markdown", "file", "--junit", "folder/x.xml", "--out", "new/runs"]) == 0
    assert seen == [before]
    assert Path("file").read_text().startswith("**same") and Path("folder/x.xml").is_file()
    assert MadeUpTrial.made[0].stored == [(Path("new/runs"), True)]


def test_the_verdict_is_printed_before_it_is_stored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that is full by then costs the Runs, not the verdict."""

    def store(self: MadeUpTrial, folder: Path, *, complete: bool = True) -> None:
        raise BadInput(f"{folder}/base: can't be written: No space left on device")

    monkeypatch.setattr(MadeUpTrial, "store", store)
    assert main([*AB, "--json", "--out", "new"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["exit_code"] == 1
    assert "No space left on device" in captured.err.splitlines()[-1]


def test_the_verdict_is_printed_and_stored_where_a_file_can_no_longer_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = MadeUpTrial.run

    def remove_folder(self: MadeUpTrial, deadline: float, report: Any) -> Document:
        Path("folder").rmdir()
        return run(self, deadline, report)

    monkeypatch.setattr(MadeUpTrial, "run", remove_folder)
    assert main([*AB, "--json", "--junit", "folder/x.xml", "--out", "new"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["exit_code"] == 1
    assert captured.err.splitlines()[-1].startswith("andrea-bench: folder/x.xml: can't be written")
    assert MadeUpTrial.made[0].stored == [(Path("new"), True)]


@pytest.mark.parametrize(("pairs", "stored"), [(0, []), (3, [(Path("new"), False)])])
def test_an_interrupted_trial_stores_what_was_finished(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pairs: int, stored: list[Any]
) -> None:
    monkeypatch.setattr(MadeUpTrial, "interrupted_after", pairs)
    assert main([*AB, "--out", "new"]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("the 3 pairs that were finished are stored in new" in captured.err) == bool(stored)
    assert MadeUpTrial.made[0].stored == stored


def test_without_out_nothing_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(AB) == 1
    monkeypatch.setattr(MadeUpTrial, "interrupted_after", 3)
    assert main(AB) == 130
    assert [made.stored for made in MadeUpTrial.made] == [[], []]


def test_threads_are_those_of_the_plan_and_of_the_processes() -> None:
    main([*AB, "-a", "threads=2", "-a", "seq_len=16,32", "--device", "cpu"])
    main([*AB, "--device", "cpu"])
    with_two, with_one = MadeUpTrial.made
    assert with_two.options["protocol"].threads == 2 and with_one.options["protocol"].threads == 1
    assert with_two.arguments == ["projection", "--device", "cpu", "-a", "seq_len=16,32", "-a", "threads=2"]
    assert with_one.arguments == ["projection", "--device", "cpu"]


@pytest.mark.parametrize("verb", [AB, ["calibrate", "projection"]])
def test_several_numbers_of_threads_are_refused(capsys: pytest.CaptureFixture[str], verb: list[str]) -> None:
    assert main([*verb, "-a", "threads=1,2"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    assert "threads=1,2: processes that are compared have one number of threads" in captured.err
    assert MadeUpTrial.made == []


def test_the_config_file_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ab.toml").write_text('suites = ["projection"]\nkernels = ["fused_qkv"]\n[axes]\nthreads = [2]\n')
    assert main(["ab", "--base", "main", "--config", "ab.toml", "--device", "cpu"]) == 1
    (made,) = MadeUpTrial.made
    assert made.arguments == ["projection", "--device", "cpu", "-a", "threads=2", "--kernel", "fused_qkv"]
    assert made.options["protocol"].threads == 2
    capsys.readouterr()
    assert main(["ab", "--base", "main"]) == 2
    assert "no suite is named" in capsys.readouterr().err
