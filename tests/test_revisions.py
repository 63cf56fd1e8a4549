"""Worktrees of two revisions: what is refused, what is said, and that nothing stays behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from andrea_bench import revisions as revisions_module
from andrea_bench.cli.main import main
from andrea_bench.errors import BadInput, EnvironmentUnfit
from andrea_bench.revisions import Revisions, open_revisions


def git(folder: Path, *arguments: str) -> str:
    name = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with spaces in its path and two commits; temporary folders go to a place that is counted."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    folder = tmp_path / "a repo with spaces"
    (folder / "andrea_bench").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "constraints.txt").write_text("torch==2.12.0\n")
    (folder / "andrea_bench" / "__init__.py").write_text("SIDE = 'first'\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    (folder / "constraints.txt").write_text("torch==2.13.0  # newer\n")
    (folder / "andrea_bench" / "__init__.py").write_text("SIDE = 'second'\n")
    git(folder, "commit", "-q", "-a", "-m", "second")
    return folder


def left_behind(repository: Path) -> list[str]:
    worktrees = git(repository, "worktree", "list").splitlines()[1:]
    return worktrees + [str(p) for p in (repository.parent / "scratch").iterdir()]


def test_each_side_has_its_own_code(repository: Path) -> None:
    with open_revisions("HEAD~1", "HEAD", repository) as revisions:
        texts = [(r.folder / "andrea_bench/__init__.py").read_text() for r in (revisions.base, revisions.head)]
        assert texts == ["SIDE = 'first'\n", "SIDE = 'second'\n"]
        assert revisions.base.environment()["PYTHONPATH"].startswith(str(revisions.base.folder))
        assert any("torch==2.12.0 in base, torch==2.13.0 in head" in warning for warning in revisions.warnings)
    assert left_behind(repository) == []


def test_the_interpreter_imports_from_the_worktree(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when started in another checkout of the same package, and with an installed one."""
    monkeypatch.chdir(repository)
    with open_revisions("HEAD~1", None) as revisions:
        for revision, side in ((revisions.base, "first"), (revisions.head, "second")):
            assert revision._python("-c", "import andrea_bench; print(andrea_bench.SIDE)").strip() == side


def test_a_dirty_tree_is_said(repository: Path) -> None:
    (repository / "andrea_bench" / "__init__.py").write_text("SIDE = 'edited'\n")
    with open_revisions("HEAD", None, repository) as revisions:
        assert revisions.head.folder == repository
        assert any("working tree with 1 uncommitted" in warning for warning in revisions.warnings)
        assert not any("same code" in warning for warning in revisions.warnings)
    with open_revisions("HEAD~1", "HEAD", repository) as revisions:
        assert any("in neither revision" in warning for warning in revisions.warnings)


def test_other_measuring_code_is_said(repository: Path) -> None:
    """Committed or not: what differs then may not be the kernels' doing."""
    with open_revisions("HEAD~1", "HEAD", repository) as revisions:
        assert not any("measures itself" in warning for warning in revisions.warnings)
    measure = repository / "andrea_bench" / "measure"
    measure.mkdir()
    (measure / "group.py").write_text("ROUNDS = 1\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "measures")
    for base, head in (("HEAD~1", "HEAD"), ("HEAD~1", None)):
        with open_revisions(base, head, repository) as revisions:
            assert any("how differs (andrea_bench/measure/group.py)" in warning for warning in revisions.warnings)
    (measure / "group.py").write_text("ROUNDS = 2\n")
    with open_revisions("HEAD", None, repository) as revisions:
        assert any("how differs (andrea_bench/measure/group.py)" in warning for warning in revisions.warnings)


def test_the_same_code_is_said(repository: Path) -> None:
    for head in ("HEAD", None):
        with open_revisions("main", head, repository) as revisions:
            assert any("same code" in warning for warning in revisions.warnings)


@pytest.mark.parametrize("revision", ["nowhere", "0123456789abcdef", "", "--help", "HEAD:andrea_bench", "HEAD~9"])
def test_a_revision_that_does_not_exist_is_one_line(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], revision: str
) -> None:
    monkeypatch.chdir(repository)
    assert main(["ab", "projection", f"--base={revision}"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    assert f"base {revision}: is no revision" in captured.err
    assert left_behind(repository) == []


def test_outside_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["ab", "projection", "--base", "HEAD"]) == 2
    assert "not a git repository" in capsys.readouterr().err


def test_without_git(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(EnvironmentUnfit, match="git is not installed"), open_revisions("HEAD", None, repository):
        pass


def test_a_base_without_the_package(repository: Path) -> None:
    git(repository, "rm", "-q", "-r", "andrea_bench")
    git(repository, "commit", "-q", "-m", "gone")
    with (
        pytest.raises(BadInput, match="base HEAD: holds no andrea_bench"),
        open_revisions("HEAD", "HEAD~1", repository),
    ):
        pass
    assert left_behind(repository) == []


def refuses_to_plan(revisions: Revisions, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        revisions.base.plan(["projection"])
    assert str(caught.value) == message


def test_a_base_that_cannot_be_imported(repository: Path) -> None:
    (repository / "andrea_bench" / "__init__.py").write_text("import a_module_that_is_nowhere\n")
    git(repository, "commit", "-q", "-a", "-m", "broken")
    with open_revisions("HEAD", "HEAD~1", repository) as revisions:
        refuses_to_plan(revisions, "base HEAD: ModuleNotFoundError: No module named 'a_module_that_is_nowhere'")
    assert left_behind(repository) == []


def test_a_base_whose_code_is_broken_is_no_error_of_this_version(repository: Path) -> None:
    error = "SyntaxError: invalid syntax (x.py, line 3)"
    said = f"andrea-bench: internal error: {error} (--debug shows where; please report it)"
    (repository / "andrea_bench" / "__main__.py").write_text(
        f"import sys\nprint({said!r}, file=sys.stderr)\nsys.exit(4)\n"
    )
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "broken")
    with open_revisions("HEAD", "HEAD~1", repository) as revisions:
        refuses_to_plan(revisions, f"base HEAD: its code can't be run ({error})")


def test_what_a_shallow_clone_lacks(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    with (
        pytest.raises(BadInput, match="a shallow clone: fetch its history"),
        open_revisions("HEAD~1", None, tmp_path / "shallow"),
    ):
        pass
    with pytest.raises(BadInput, match=r"is no revision of [^,]*$"), open_revisions("nowhere", None, repository):
        pass


def test_worktrees_of_one_that_was_killed_are_removed_by_the_next(repository: Path) -> None:
    code = (
        "import os, signal, sys, tempfile; from pathlib import Path\n"
        "from andrea_bench.revisions import open_revisions\n"
        "tempfile.tempdir = sys.argv[2]\n"
        "with open_revisions('HEAD~1', 'HEAD', Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    scratch = repository.parent / "scratch"
    done = subprocess.run([sys.executable, "-c", code, str(repository), str(scratch)])
    assert done.returncode == -signal.SIGKILL and len(left_behind(repository)) == 3
    with open_revisions("HEAD~1", "HEAD", repository):
        held = left_behind(repository)
        assert len(held) == 3
        # Those of one that is at work stay.
        with open_revisions("HEAD~1", "HEAD", repository):
            assert set(held) < set(left_behind(repository))
    assert left_behind(repository) == []


@pytest.mark.parametrize("what", ["the lock", "the folder"])
def test_worktrees_whose_removal_was_cut_off_are_removed_by_the_next(repository: Path, what: str) -> None:
    """By a second SIGKILL, say: the lock may be gone already, or the folder, but git still lists them."""
    folder = repository.parent / "scratch" / "andrea-bench-ab-cut"
    git(repository, "worktree", "add", "-q", "--detach", str(folder / "base"), "HEAD~1")
    if what == "the folder":
        shutil.rmtree(folder)
    assert any("andrea-bench-ab-cut" in line for line in left_behind(repository))
    with open_revisions("HEAD~1", "HEAD", repository):
        assert not any("andrea-bench-ab-cut" in line for line in left_behind(repository))
    assert left_behind(repository) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_interrupt_does_not_cut_off_the_cleaning_up(
    repository: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    remove, before = revisions_module._remove, signal.getsignal(number)

    def interrupted(*arguments: Path) -> None:
        os.kill(os.getpid(), number)
        remove(*arguments)

    monkeypatch.setattr(revisions_module, "_remove", interrupted)
    with pytest.raises(KeyboardInterrupt), open_revisions("HEAD~1", "HEAD", repository):
        raise KeyboardInterrupt
    assert left_behind(repository) == [] and signal.getsignal(number) == before


def test_a_base_that_lacks_the_suite_says_so_itself(repository: Path) -> None:
    main_text = "import sys\nprint('andrea-bench: unknown suite', file=sys.stderr)\nsys.exit(2)\n"
    (repository / "andrea_bench" / "__main__.py").write_text(main_text)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "no suite")
    with open_revisions("HEAD", "HEAD~1", repository) as revisions:
        refuses_to_plan(revisions, "base HEAD: unknown suite")


def test_submodules_and_hooks(repository: Path, tmp_path: Path) -> None:
    """A worktree has no submodules, which is said; hooks of the repository don't run; all is removed."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    git(other, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "sub")
    git(repository, "commit", "-q", "-m", "with a submodule")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/hook-ran'\n")
    hook.chmod(0o755)
    with open_revisions("HEAD", "HEAD~1", repository) as revisions:
        assert any("submodules" in warning for warning in revisions.warnings)
    assert not (tmp_path / "hook-ran").exists()
    assert left_behind(repository) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_nothing_is_left_behind_however_it_ends(repository: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), open_revisions("HEAD~1", "HEAD", repository):
        raise error
    assert left_behind(repository) == []


def test_a_worktree_that_git_was_still_making_goes_too(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted while git, and a process that git started, write it: both are ended, and its lock is undone."""
    real = shutil.which("git")
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(
        f"""#!/bin/bash
"{real}" "$@" || exit
if [[ " $* " == *" worktree add "* ]]; then
    folder="${{@: -2:1}}"
    "{real}" -C "{repository}" worktree lock "$folder"
    (for i in $(seq 100); do mkdir -p "$folder"; touch "$folder/$i"; sleep 0.05; done) &
    touch "{tmp_path}/begun"
    wait
fi
"""
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")

    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt), open_revisions("HEAD~1", "HEAD", repository):
        pass
    thread.join()
    time.sleep(0.3)
    assert left_behind(repository) == []


def test_worktrees_of_the_user_stay_known(repository: Path, tmp_path: Path) -> None:
    """As of a disk that is away while ab runs."""
    mine, away = tmp_path / "mine", tmp_path / "away"
    git(repository, "worktree", "add", "--detach", str(mine), "HEAD")
    mine.rename(away)
    with open_revisions("HEAD~1", "HEAD", repository):
        pass
    away.rename(mine)
    assert git(mine, "rev-parse", "HEAD") == git(repository, "rev-parse", "HEAD")
    git(repository, "worktree", "remove", "--force", str(mine))
    assert left_behind(repository) == []


def test_a_folder_that_cannot_be_locked_is_removed(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that is full to the last byte."""

    def full(folder: Path) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("andrea_bench.revisions._lock", full)
    with pytest.raises(OSError, match="No space left"), open_revisions("HEAD~1", None, repository):
        pass
    assert left_behind(repository) == []


def test_a_worktree_that_cannot_be_written(repository: Path) -> None:
    """As on a full disk: git's own words, in one line, and nothing left."""
    big = repository / "andrea_bench" / "big.bin"
    big.write_bytes(b"x" * 200_000)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "big")
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(BadInput, match="its worktree could not be made"), open_revisions("HEAD", None, repository):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert left_behind(repository) == []


@pytest.mark.parametrize("budget", ["120", "٥s", "1_0s", "two minutes", "-5s", "0s", "nan s", ""])
def test_budgets_without_a_unit_are_refused(capsys: pytest.CaptureFixture[str], budget: str) -> None:
    assert main(["ab", "projection", "--base", "HEAD", f"--budget={budget}"]) == 2
    assert "--budget" in capsys.readouterr().err
