"""A folder of asv's results: its machines, and the result file of a commit named as in git."""

import subprocess
from pathlib import Path

from andrea_bench.errors import BadInput
from andrea_bench.tracking.results import LISTED, MACHINE, Results, read_json, read_results


def is_tracked(path: Path) -> bool:
    """Whether `path` names results of asv: a folder of them, one machine's, a file, each with @REVISION or not."""
    folder, _ = split_revision(path)
    if folder.is_file():
        return folder.suffix == ".json" and (folder.parent / MACHINE).is_file()
    return folder.is_dir() and ((folder / LISTED).is_file() or (folder / MACHINE).is_file())


def split_revision(path: Path) -> tuple[Path, str | None]:
    """`.asv/results@HEAD~1` as the folder and the revision; a path that exists is a path."""
    text = str(path)
    if path.exists() or "@" not in text:
        return path, None
    # A machine's name may hold an @ (node@7@HEAD), and so may a revision (HEAD@{1}): the longest path that exists.
    cuts = [i for i, letter in enumerate(text) if letter == "@"]
    at = next((i for i in reversed(cuts) if Path(text[:i]).exists()), cuts[-1])
    return Path(text[:at]), text[at + 1 :]


def read_side(path: Path) -> Results:
    """The one result file that `path` names: a file, or FOLDER@REVISION, FOLDER being the results of all
    machines or of one; without @REVISION that of HEAD. Raises BadInput, saying what there is instead."""
    folder, revision = split_revision(path)
    if folder.is_file():
        return read_results(folder)
    machine = machine_folder(folder, None)
    commit = resolve(revision or "HEAD", {file.name.partition("-")[0] for file in result_files(machine)})
    found = [r for r in (read_results(f) for f in _of_commit(machine, commit)) if r.commit.startswith(commit)]
    if not found:
        known = sorted({file.name.partition("-")[0] for file in result_files(machine)})
        raise BadInput(
            f"{machine}: has no results of {revision or 'HEAD'} ({commit[:8]}); it has {_few(known)}; "
            f"`asv run {revision or 'HEAD'}^!` measures it"
        )
    if len({r.commit for r in found}) > 1:
        raise BadInput(f"{revision}: is ambiguous: {', '.join(r.commit[:12] for r in found)}; give more digits")
    if len(found) > 1:
        raise BadInput(
            f"{machine}: has results of {commit[:8]} in {len(found)} environments; name one file: "
            + ", ".join(r.file.name for r in found)
        )
    return found[0]


def machine_folder(folder: Path, name: str | None) -> Path:
    """The folder of one machine's results. Raises BadInput where there is none, or several and no name."""
    if (folder / MACHINE).is_file():
        return folder
    if not folder.is_dir():
        raise BadInput(f"{folder}: there are no results of asv; `asv run` makes them")
    # A machine named `node/7` lies a folder deeper.
    found = dict(sorted((one.parent.relative_to(folder).as_posix(), one.parent) for one in folder.rglob(MACHINE)))
    if name is not None:
        if name not in found:
            raise BadInput(f"{folder}: has no machine {name!r}; it has {_few(list(found))}")
        return found[name]
    if len(found) != 1:
        said = f"has results of {len(found)} machines ({_few(list(found))}); name one: {folder}/MACHINE"
        raise BadInput(f"{folder}: {said}" if found else f"{folder}: holds no results of asv yet; `asv run` makes them")
    return next(iter(found.values()))


def result_files(machine: Path) -> list[Path]:
    """All result files of a machine, in order of name."""
    return sorted(file for file in machine.glob("*.json") if file.name != MACHINE)


def machine_facts(machine: Path) -> dict[str, str]:
    """machine.json."""
    return {key: str(value) for key, value in read_json(machine / MACHINE).items()}


def _of_commit(machine: Path, commit: str) -> list[Path]:
    """asv names files by eight digits of the commit; two commits may share them."""
    return [file for file in result_files(machine) if file.name.startswith(commit[:8])]


def resolve(revision: str, stored: set[str]) -> str:
    """The commit that `revision` names: asked of git, else the digits themselves if results of such a commit are
    stored (of one that git no longer has). Raises BadInput."""
    commit = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit:
        return commit
    if len(revision) >= 4 and set(revision) <= set("0123456789abcdef"):
        matching = {one for one in stored if one.startswith(revision[:8]) or revision.startswith(one)}
        if len(matching) > 1:
            raise BadInput(f"{revision}: is ambiguous: {', '.join(sorted(matching))}; give more digits")
        if matching:
            return revision if len(revision) > 8 else matching.pop()
    if git("rev-parse", "--git-dir") is None:
        raise BadInput(f"{revision}: can't be looked up: this is no git repository; give the commit's digits")
    if git("rev-parse", "--is-shallow-repository") == "true":
        raise BadInput(f"{revision}: this clone is shallow and lacks it; `git fetch --unshallow` fetches all commits")
    raise BadInput(f"{revision}: git knows no such commit, and no results of one are stored")


def order(commits: list[tuple[str, int]]) -> tuple[list[str], str | None]:
    """Commits (hash, date in ms) in the order of history where git knows all of them; else by date, and why."""
    by_date = [commit for commit, _ in sorted(commits, key=lambda one: (one[1], one[0]))]
    listed = git("rev-list", "--topo-order", "--reverse", "--end-of-options", *by_date) if by_date else ""
    if listed is not None:
        place = {commit: i for i, commit in enumerate(listed.split())}
        return sorted(by_date, key=lambda commit: place[commit]), None
    if git("rev-parse", "--git-dir") is None:
        return by_date, "ordered by date: this is no git repository"
    lacking = [commit[:8] for commit in by_date if git("cat-file", "-e", f"{commit}^{{commit}}") is None]
    shallow = git("rev-parse", "--is-shallow-repository") == "true"
    cure = "; `git fetch --unshallow` fetches all commits" if shallow else ""
    return by_date, f"ordered by date: git lacks {len(lacking)} of {len(by_date)} commits ({_few(lacking)}){cure}"


def git(*arguments: str) -> str | None:
    """What git answers in the current folder; None where it fails or is absent."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _few(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") if names else "none"
