"""Two git revisions side by side: each in a worktree of its own, run by an interpreter that imports from there.

Dependencies are those of the current environment for both.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from andrea_bench.errors import BadInput, EnvironmentUnfit
from andrea_bench.problem import Problem

PROBE = "import andrea_bench; print(andrea_bench.__file__)"
PROBE_LIMIT_S = 120
END_LIMIT_S = 10
MEASURING = "andrea_bench/measure"
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PREFIX, LOCK = "andrea-bench-ab-", ".lock"  # of the folder of both worktrees


class PlannedCell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell of `plan --json`: what ab needs of it."""

    cell_id: str
    suite: str
    op: str
    kernel: str
    problem: Problem
    threads: int = 1
    status: str | None = None
    reason: str | None = None


class _Planned(msgspec.Struct):
    cells: list[PlannedCell]


@dataclass(frozen=True)
class Revision:
    """The code of one side. side: base or head. label: as the user named it. folder: where it lies."""

    side: str
    label: str
    commit: str | None
    folder: Path

    def environment(self) -> dict[str, str]:
        """Variables by which an interpreter imports this revision's packages, and not those of the current
        folder or of an installation."""
        paths = [str(self.folder), str(self.folder / "kernels"), os.environ.get("PYTHONPATH", "")]
        return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONSAFEPATH": "1"}

    def plan(self, arguments: list[str]) -> list[PlannedCell]:
        """The cells that this revision makes of `arguments`. Raises BadInput with the revision's own last line
        where it lacks a suite or kernel, or its code can't be imported with what is installed here."""
        where = self._python("-c", PROBE).strip()
        if not Path(where).resolve().is_relative_to(self.folder.resolve()):
            raise EnvironmentUnfit(f"{self.side} {self.label}: andrea_bench is imported from {where} instead")
        text = self._python("-m", "andrea_bench", "plan", *arguments, "--json")
        try:
            return msgspec.json.decode(text, type=_Planned).cells
        except msgspec.MsgspecError as error:
            raise BadInput(
                f"{self.side} {self.label}: its `plan --json` can't be read by this version of andrea-bench ({error}); "
                f"name another revision"
            ) from None

    def _python(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                [sys.executable, *arguments], env={**os.environ, **self.environment()}, capture_output=True,
                check=False, timeout=PROBE_LIMIT_S, encoding="utf-8", errors="backslashreplace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise BadInput(f"{self.side} {self.label}: made no plan within {PROBE_LIMIT_S} s") from None
        if done.returncode:
            said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            said = said.removeprefix("andrea-bench: ")
            if inner := re.fullmatch(r"internal error: (.*) \(--debug .*\)", said):
                said = f"its code can't be run ({inner[1]})"
            raise BadInput(f"{self.side} {self.label}: {said}")
        return done.stdout


@dataclass(frozen=True)
class Revisions:
    """Both sides, the repository that they are of, and what a reader should know of them."""

    repository: Path
    base: Revision
    head: Revision
    warnings: list[str]


@contextmanager
def open_revisions(base: str, head: str | None, start: Path | None = None) -> Iterator[Revisions]:
    """Worktrees of `base` and of `head` (None: the working tree as it is); gone when the context ends,
    however it ends. Raises BadInput for what git can't give, EnvironmentUnfit without git."""
    repository = Path(_git(start or Path.cwd(), "rev-parse", "--show-toplevel").strip())
    commits = {"base": _commit(repository, "base", base)}
    if head is not None:
        commits["head"] = _commit(repository, "head", head)
    _remove_left_behind(repository)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = None
    try:
        lock = _lock(folder)
        sides = {}
        for side, commit in commits.items():
            label = base if side == "base" else str(head)
            _add_worktree(repository, folder / side, commit, f"{side} {label}")
            sides[side] = Revision(side, label, commit, folder / side)
        if head is None:
            sides["head"] = Revision("head", "working tree", None, repository)
        for revision in sides.values():
            _check(revision)
        yield Revisions(repository, sides["base"], sides["head"], _warnings(repository, sides["base"], sides["head"]))
    finally:
        with _uninterrupted():
            _remove(repository, folder)
        if lock is not None:
            os.close(lock)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Without interrupts, for the second it takes to clean up: a second Ctrl-C would leave half of it behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _git(folder: Path, *arguments: str) -> str:
    # Within a git hook, variables of git's own would point at the hook's repository. Hooks of the repository
    # must not run for a worktree that only measures.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", *arguments]
    try:
        process = subprocess.Popen(
            command, env={**clean, "LC_ALL": "C"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            encoding="utf-8", errors="surrogateescape", start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        raise EnvironmentUnfit("git is not installed, and ab compares git revisions") from None
    try:
        out, err = process.communicate()
    except BaseException:
        _end(process)
        raise
    if process.returncode:
        lines = err.strip().splitlines() or ["no message"]
        said = next((line for line in reversed(lines) if line.startswith(("fatal:", "error:"))), lines[-1])
        raise BadInput(f"git {arguments[0]}: {said}")
    return out


def _end(process: "subprocess.Popen[str]") -> None:
    """End git and the processes that it started, which would go on writing a worktree; wait for all of them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            # The pipes end with the last process that holds them.
            process.communicate(timeout=END_LIMIT_S)
            return


def _commit(repository: Path, side: str, revision: str) -> str:
    name = f"{revision}^{{commit}}"
    try:
        commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
    except BadInput:
        shallow = _git(repository, "rev-parse", "--is-shallow-repository").strip() == "true"
        why = ", a shallow clone: fetch its history (`git fetch --unshallow`, fetch-depth: 0)" if shallow else ""
        raise BadInput(f"{side} {revision}: is no revision of {repository}{why}") from None
    return commit.strip()


def _add_worktree(repository: Path, folder: Path, commit: str, what: str) -> None:
    try:
        _git(repository, "worktree", "add", "--detach", "--quiet", str(folder), commit)
    except BadInput as error:
        raise BadInput(f"{what}: its worktree could not be made ({error})") from None


def _check(revision: Revision) -> None:
    if not (revision.folder / "andrea_bench" / "__init__.py").is_file():
        raise BadInput(f"{revision.side} {revision.label}: holds no andrea_bench/ to measure with")
    if os.pathsep in str(revision.folder):
        raise BadInput(f"{revision.folder}: a path with {os.pathsep!r} can't be searched for modules; move it")


def _remove(repository: Path, folder: Path) -> None:
    """Remove the worktrees, whatever state they are in, and have git forget these; `prune` would forget any whose
    disk is away just now."""
    listed = _worktrees(repository, folder)
    shutil.rmtree(folder, ignore_errors=True)
    for worktree in listed:
        try:
            # Twice: one that git was at making is locked.
            _git(repository, "worktree", "remove", "--force", "--force", str(worktree))
        except BadInput as error:
            print(f"andrea-bench: {worktree} is gone, but git still lists it: {error}", file=sys.stderr)


def _lock(folder: Path) -> int:
    """Hold a lock on the folder for as long as this process lives, or the handle is open."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle


def _remove_left_behind(repository: Path) -> None:
    """Remove the worktrees of an ab that was killed, which nobody holds any more."""
    for folder in {path.parent for path in _worktrees(repository, Path("/"))}:
        if not folder.name.startswith(PREFIX):
            continue
        if not folder.exists():  # its removal was cut off at the last step
            _remove(repository, folder)
            continue
        with suppress(OSError):  # held by one at work, or another user's
            lock = _lock(folder)
            _remove(repository, folder)
            os.close(lock)


def _worktrees(repository: Path, folder: Path) -> list[Path]:
    """The worktrees in `folder` that git knows."""
    with suppress(BadInput):
        lines = _git(repository, "worktree", "list", "--porcelain").splitlines()
        found = [Path(line.removeprefix("worktree ")) for line in lines if line.startswith("worktree ")]
        return [path for path in found if path.resolve().is_relative_to(folder.resolve())]
    return []


def _warnings(repository: Path, base: Revision, head: Revision) -> list[str]:
    found = []
    dirty = _git(repository, "status", "--porcelain").splitlines()
    if dirty and head.commit is None:
        found.append(f"head is the working tree with {len(dirty)} uncommitted changes")
    elif dirty:
        found.append(f"{len(dirty)} uncommitted changes of the working tree are in neither revision")
    same = head.commit or (None if dirty else _git(repository, "rev-parse", "HEAD").strip())
    if same == base.commit:
        found.append("base and head are the same code: whatever differs is noise")
    if (base.folder / ".gitmodules").is_file():
        found.append("submodules are not checked out in worktrees; code in them is missing there")
    sides = [side.commit for side in (base, head) if side.commit]
    changed = _git(repository, "diff", "--name-only", *sides, "--", MEASURING).splitlines()
    if changed:
        few = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
        found.append(f"each side measures itself, and how differs ({few}): part of a difference may come from that")
    for name in ("constraints.txt", "pyproject.toml"):
        before, after = (_pins(side.folder / name) for side in (base, head))
        changed = [f"{pin} in base" for pin in sorted(before - after)] + [
            f"{pin} in head" for pin in sorted(after - before)
        ]
        if changed:
            few = ", ".join(changed[:6]) + (", ..." if len(changed) > 6 else "")
            found.append(f"{name} pins differ ({few}); both sides ran with what is installed here")
    return found


def _pins(file: Path) -> set[str]:
    """The requirements that a file names."""
    if not file.is_file():
        return set()
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".toml":
        try:
            project = tomllib.loads(text).get("project", {})
        except tomllib.TOMLDecodeError:
            return set()
        return {str(pin) for pin in project.get("dependencies", [])}
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {line for line in lines if line and not line.startswith("-")}
