"""Files that are written whole or not at all, and what is said where they can't be."""

import os
import stat
import sys
import tempfile
from pathlib import Path

from andrea_bench.errors import BadInput

STDOUT = Path("/dev/stdout")


def write_whole(file: Path, content: bytes) -> None:
    """Replace `file` by `content` or leave it as it was: written beside it, synced, then renamed.

    A link keeps pointing to what it did; /dev/stdout, and any device or pipe, is written to. Raises BadInput naming the
    file and the cause; no stray file stays behind."""
    if file.name == "-":
        raise BadInput("-: is no file's name here; name a file (/dev/stdout is one)")
    temporary: str | None = None
    try:
        if file == STDOUT:  # where it leads to is not to be replaced, and stands at its own place
            sys.stdout.flush()
            sys.stdout.buffer.write(content)
            sys.stdout.flush()
            return
        if file.exists() and not file.is_file():
            file.write_bytes(content)
            return
        target = file.resolve()
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise BadInput(f"{file}: can't be written: {error.strerror}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _mode(file: Path) -> int:
    """The permissions of a file that is there; else those that a new one has here."""
    try:
        return stat.S_IMODE(file.stat().st_mode)
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, where it isn't there. Raises BadInput."""
    if folder.name == "-":
        raise BadInput("-: is no folder's name here; name a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder}: can't be made: {error.strerror}") from error


def check_file(file: Path | None) -> None:
    """Raises BadInput where `write_whole` could not write a file: to be told before minutes of measuring."""
    if file is None:
        return
    if file.name == "-" or file.is_dir():
        raise BadInput(f"{file}: is no file's name here; name a file")
    if file != STDOUT and (not file.exists() or file.is_file()):  # a device or pipe is written to as it is
        try_to_write(file.resolve().parent, file)


def try_to_write(folder: Path, target: Path) -> None:
    """Make, and remove, what is first made of a target: a file in `folder` with a longer name. Raises BadInput."""
    try:
        handle, probe = tempfile.mkstemp(dir=folder, prefix=f".{target.name}.")
        os.close(handle)
        os.unlink(probe)
    except OSError as error:
        raise BadInput(f"{target}: can't be written: {error.strerror}") from None
