"""What every verb prints through: a rich console on stdout, notes on stderr, JSON documents.

Text of the user's (paths, host names, kernel names, error texts) goes in as `rich.text.Text` or through
`plain`, never as markup.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from rich.console import Console


LEAST_COLUMNS = 20


def console() -> "Console":
    """The console of stdout: as wide as the terminal, 80 columns in a pipe, plain under NO_COLOR, TERM=dumb
    or a pipe, ASCII where the encoding has no box characters."""
    return _console(sys.stdout)


def notes() -> "Console":
    """The console of stderr, for progress and notes."""
    return _console(sys.stderr)


def _console(stream: Any) -> "Console":
    from rich.console import Console

    # A character that the encoding lacks must not cut a report in half.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace" if _is_utf(stream) else "backslashreplace")

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            # rich would end the process with 1, which is a regression here; a reader that left is no error.
            raise BrokenPipeError

    columns = os.environ.get("COLUMNS", "")
    asked = int(columns) if columns.isdigit() and int(columns) >= LEAST_COLUMNS else None
    width = asked or (None if stream.isatty() else 80)
    return Plain(file=stream, width=width, highlight=False, emoji=False, safe_box=True)


def _is_utf(stream: Any) -> bool:
    return "utf" in (getattr(stream, "encoding", None) or "").lower()


def plain(text: object) -> str:
    """`text` with rich's markup escaped, for places that take strings."""
    from rich.markup import escape

    # A trailing backslash would escape the tag that follows.
    return escape(str(text))


def note(text: object) -> None:
    """One line on stderr."""
    notes().print(str(text), markup=False, soft_wrap=True)


def print_json(document: Any) -> None:
    """The one JSON document of a `--json` call on stdout; strict JSON (msgspec writes NaN as null)."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n")
    sys.stdout.flush()
