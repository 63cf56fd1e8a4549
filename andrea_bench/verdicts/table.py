"""A Document on a terminal."""

from typing import TYPE_CHECKING

from andrea_bench.verdicts.document import Document
from andrea_bench.verdicts.wording import MOST_ROWS, cell_name, headline, one_line, ratio_text, remarks, rows

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"slower": "red", "broken": "red", "faster": "green", "inconclusive": "yellow", "not_comparable": "yellow"}


def print_document(console: "Console", document: Document) -> None:
    """The cells, the worst first, with reason and likely causes; then remarks and the verdict of the whole."""
    from rich.table import Table
    from rich.text import Text

    shown = rows(document)[:MOST_ROWS]
    if shown:
        table = Table(box=None, pad_edge=False, show_edge=False)
        table.add_column("verdict", no_wrap=True)
        table.add_column("head / base", no_wrap=True)
        table.add_column("cell and reason", overflow="fold")
        for cell in shown:
            verdict = Text(cell.verdict.replace("_", " "), style=STYLES.get(cell.verdict, ""))
            what = Text(one_line(cell_name(cell)), overflow="fold")
            if cell.verdict != "same":
                told = [cell.reason, *(f"cause? {c}" for c in cell.likely_causes)]
                what.append("\n" + "\n".join(map(one_line, told)), "dim")
            table.add_row(verdict, Text(ratio_text(cell)), what)
        console.print(table)
    if len(document.cells) > len(shown):
        console.print(f"and {len(document.cells) - len(shown)} cells more (--json shows all)")
    for remark in remarks(document):
        console.print(Text(one_line(remark)))
    console.print(Text(one_line(headline(document)), style=f"bold {STYLES.get(document.verdict, 'green')}"))
