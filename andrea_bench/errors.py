"""The errors that end a command with one line and an exit code, instead of a traceback."""

from collections.abc import Iterable
from difflib import get_close_matches


class AndreaError(Exception):
    """Something that a user can act on. `exit_code` is that of the command-line contract."""

    exit_code = 2


class BadInput(AndreaError, ValueError):
    """Wrong usage or bad input: what is wrong, where, and what would be right."""


class EnvironmentUnfit(AndreaError, RuntimeError):
    """Nothing could run on this machine, or it can't be measured."""

    exit_code = 4


class Unsupported(Exception):
    """A Kernel that can't do a Problem on a device. Becomes the status `unsupported`, never an exit."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> BadInput:
    """The error for a name that is not known, with the closest known ones (or all, where none is close)."""
    names = sorted(known)
    close = get_close_matches(name, names, n=3, cutoff=0.5) or get_close_matches(name.lower(), names, n=3, cutoff=0.4)
    hint = f"closest: {', '.join(close)}" if close else f"known: {', '.join(names)}"
    return BadInput(f"unknown {kind} {name!r}; {hint}")
