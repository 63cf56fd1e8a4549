"""What every verb prints through: a rich console on stdout, notes on stderr, JSON documents.

Text of the user's (paths, host names, kernel names, error texts) goes in as `rich.text.Text` or through
`plain`, never as markup. Control characters in it reach no terminal: the console prints what `printable` makes of them.
"""

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.text import Text


LEAST_COLUMNS = 20
# What a terminal would obey (C0 but for tab and line feed, DEL, C1), and one character that shows for each.
SHOWN = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
SHOWN |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def printable(text: str) -> str:
    """`text` with a picture in place of each control character, as U+241B for the one that begins escape codes."""
    return text.translate(SHOWN)


def console() -> "Console":
    """The console of stdout: as wide as the terminal, 80 columns in a pipe, plain under NO_COLOR, TERM=dumb
    or a pipe, ASCII where the encoding has no box characters."""
    return _console(sys.stdout)


def notes() -> "Console":
    """The console of stderr, for progress and notes."""
    return _console(sys.stderr)


def _console(stream: Any) -> "Console":
    from rich.console import Console
    from rich.text import Text

    # A character that the encoding lacks must not cut a report in half.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace" if _is_utf(stream) else "backslashreplace")

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            # rich would end the process with 1, which is a regression here; a reader that left is no error.
            raise BrokenPipeError

        # Every Text comes through here, be it in a table or a progress line. rich itself drops but a few controls.
        def render(self, renderable: Any, options: "ConsoleOptions | None" = None) -> "Iterable[Segment]":
            return super().render(_printable(renderable) if isinstance(renderable, Text) else renderable, options)

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

    columns = os.environ.get("COLUMNS", "")
    asked = int(columns) if columns.isdigit() and int(columns) >= LEAST_COLUMNS else None
    width = asked or (None if stream.isatty() else 80)
    # NO_COLOR alone would leave rich's bold and dim: no styles at all is what is asked for.
    styles: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Plain(file=stream, width=width, color_system=styles, highlight=False, emoji=False, safe_box=True)


def _printable(text: "Text") -> "Text":
    """The same in its styles, `printable`."""
    shown = printable(text.plain)
    if shown == text.plain:
        return text
    changed = text.copy()
    changed.plain = shown
    return changed


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


def decided(exit_code: int) -> None:
    """Say, before the verdict is printed, what the verb ends with: a reader of the output that leaves (head) must not
    turn a regression into a pass."""
    context = click.get_current_context(silent=True)
    if context and isinstance(context.obj, dict):
        context.obj["exit_code"] = exit_code


def print_json(document: Any) -> None:
    """The one JSON document of a `--json` call on stdout; strict JSON (msgspec writes NaN as null)."""
    try:
        content = msgspec.json.encode(document)
    except UnicodeEncodeError:  # a path or host name of bytes that are no UTF-8
        content = msgspec.json.encode(_encodable(msgspec.to_builtins(document)))
    sys.stdout.write(msgspec.json.format(content, indent=1).decode() + "\n")
    sys.stdout.flush()


def _encodable(value: Any) -> Any:
    """`value` with each such byte as `\\udcff` in its texts."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(one) for key, one in value.items()}
    return [_encodable(one) for one in value] if isinstance(value, list) else value
