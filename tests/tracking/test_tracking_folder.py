"""Which result file a path, a machine and a revision name."""

import subprocess
from pathlib import Path

import pytest
from asv_files import commit, times, write

from andrea_bench.errors import BadInput
from andrea_bench.tracking.folder import is_tracked, machine_folder, order, read_side

ROW = {"a.time_it": times([1.0], [])}


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """A repository of four commits, with results of the last three and a tag on the second."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    made = []
    for number in range(4):
        git(folder, "commit", "-q", "--allow-empty", "-m", str(number))
        made.append(git(folder, "rev-parse", "HEAD"))
    git(folder, "tag", "v1", made[1])
    for number in (1, 2, 3):
        # Stored dates that contradict history: history counts.
        write(folder / ".asv/results", 9 - number, ROW, hash40=made[number])
    monkeypatch.chdir(folder)
    return folder, made


def side(text: str) -> str:
    return read_side(Path(f".asv/results{text}")).commit


def test_revisions_as_in_git(repository: tuple[Path, list[str]]) -> None:
    _, made = repository
    assert side("") == side("@HEAD") == side("/node@main") == made[3]
    assert side("@HEAD~1") == side("@HEAD^") == made[2]
    assert side("@v1") == side(f"@{made[1][:7]}") == side(f"@{made[1]}") == made[1]
    assert side(f"/node/{made[2][:8]}-venv-py3.11.json") == made[2]


def test_a_commit_without_results(repository: tuple[Path, list[str]]) -> None:
    _, made = repository
    with pytest.raises(BadInput, match=rf"no results of HEAD~3 \({made[0][:8]}\).*asv run HEAD~3\^!"):
        side("@HEAD~3")


def test_what_git_does_not_know(repository: tuple[Path, list[str]]) -> None:
    with pytest.raises(BadInput, match="git knows no such commit"):
        side("@v9")
    with pytest.raises(BadInput, match="git knows no such commit"):
        side("@--help")


def test_a_commit_that_no_longer_exists_but_has_results(repository: tuple[Path, list[str]]) -> None:
    folder, _ = repository
    write(folder / ".asv/results", 5, ROW, hash40="deadbeef" + "0" * 32)
    assert side("@deadbeef") == side("@deadbeef0000") == side("@dead") == "deadbeef" + "0" * 32


def test_ambiguous_digits(repository: tuple[Path, list[str]]) -> None:
    folder, _ = repository
    for tail, env in (("0", "venv-a"), ("1", "venv-b")):
        write(folder / ".asv/results", 5, ROW, hash40="deadbeef" + tail * 32, env=env)
    with pytest.raises(BadInput, match="ambiguous"):
        side("@deadbeef")
    assert side("@deadbeef11") == "deadbeef" + "1" * 32
    write(folder / ".asv/results", 5, ROW, hash40="dead0000" + "0" * 32)
    with pytest.raises(BadInput, match="ambiguous"):
        side("@dead")


def test_a_shallow_clone(repository: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, made = repository
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{folder}", str(shallow))
    write(shallow / ".asv/results", 1, ROW, hash40=made[3])
    monkeypatch.chdir(shallow)
    assert side("@HEAD") == made[3]
    with pytest.raises(BadInput, match="shallow"):
        side("@HEAD~1")
    _, why = order([(made[3], 2), (made[2], 1)])
    assert why is not None and f"git lacks 1 of 2 commits ({made[2][:8]}); `git fetch --unshallow`" in why


def test_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    write(tmp_path / ".asv/results", 7, ROW)
    assert side(f"@{commit(7)[:8]}") == commit(7)
    with pytest.raises(BadInput, match="no git repository"):
        side("@HEAD")
    assert order([(commit(2), 20), (commit(1), 30)]) == (
        [commit(2), commit(1)],
        "ordered by date: this is no git repository",
    )


def test_order_is_that_of_history(repository: tuple[Path, list[str]]) -> None:
    _, made = repository
    assert order([(made[3], 1), (made[1], 3), (made[2], 2)]) == (made[1:], None)
    assert order([]) == ([], None)


def test_a_commit_that_git_lacks_makes_the_order_that_of_dates(repository: tuple[Path, list[str]]) -> None:
    _, made = repository
    gone = "deadbeef" + "0" * 32
    assert order([(made[3], 1), (gone, 2), (made[2], 3)]) == (
        [made[3], gone, made[2]],
        "ordered by date: git lacks 1 of 3 commits (deadbeef)",
    )


def test_machines(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no results"):
        machine_folder(tmp_path / "none", None)
    with pytest.raises(BadInput, match="no results of asv yet"):
        machine_folder(tmp_path, None)
    write(tmp_path, 1, ROW, machine="Büro-PC 1")
    assert machine_folder(tmp_path, None).name == "Büro-PC 1"
    write(tmp_path, 1, ROW, machine="3d2260935502")
    with pytest.raises(BadInput, match="2 machines"):
        machine_folder(tmp_path, None)
    with pytest.raises(BadInput, match="no machine 'x'"):
        machine_folder(tmp_path, "x")
    assert machine_folder(tmp_path, "3d2260935502").name == "3d2260935502"


def test_two_environments_of_one_commit(repository: tuple[Path, list[str]]) -> None:
    folder, made = repository
    write(folder / ".asv/results", 5, ROW, hash40=made[3], env="venv-torch2.12")
    with pytest.raises(BadInput, match="2 environments"):
        side("@HEAD")


def test_what_is_tracked(repository: tuple[Path, list[str]], tmp_path: Path) -> None:
    assert is_tracked(Path(".asv/results@HEAD~1")) and is_tracked(Path(".asv/results/node"))
    assert not is_tracked(tmp_path) and not is_tracked(Path("results/run")) and not is_tracked(Path("a@b"))
