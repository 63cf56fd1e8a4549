"""A Document in words and rows, as every format of it shows them."""

import re
from collections.abc import Iterable, Iterator

from andrea_bench.verdicts.document import VERDICTS, CellName, CellVerdict, Document

MOST_ROWS = 50  # of a table on a terminal or in a comment; JSON and JUnit hold all cells
MOST_NAMES = 20  # of cells that one side lacks
NUMBER = re.compile(r"((?<![\w.])[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


def headline(document: Document) -> str:
    """The verdict, the reason that won and the exit code, in one line. Of a report it is gate's code, not its own."""
    verdict = document.verdict.replace("_", " ")
    ends = "exit" if document.policy.family == "holm" else "gate would exit"
    return f"{verdict}: {document.reason} ({ends} {document.exit_code})"


def one_line(text: str) -> str:
    """`text` with nothing in it that ends a line, or that a terminal would obey: names and reasons are free text."""
    line = " ".join(text.splitlines())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def collapsed(reasons: Iterable[str]) -> list[str]:
    """Reasons that differ in their numbers alone as one, with the range of each number:
    `other processes kept 0.31 to 0.62 of 2 CPUs busy in 14 readings`. What follows a colon is no quantity but a
    cause or a list (of process ids): another one there is another reason."""
    kinds: dict[tuple[str, ...], list[list[str]]] = {}
    for reason in dict.fromkeys(reasons):
        said, colon, rest = reason.partition(": ")
        parts = NUMBER.split(said)  # text and numbers by turns
        kinds.setdefault((*parts[::2], colon + rest), []).append(parts[1::2])
    return [_ranged(list(texts), tail, numbers) for (*texts, tail), numbers in kinds.items()]


def _ranged(texts: list[str], tail: str, numbers: list[list[str]]) -> str:
    """texts: the words around the numbers; numbers: those of each reading, as they were written."""
    said = texts[0]
    for text, values in zip(texts[1:], zip(*numbers, strict=True), strict=True):
        low, high = min(values, key=float), max(values, key=float)
        said += (low if low == high else f"{low} to {high}") + text
    return said + (f" in {len(numbers)} readings" if len(numbers) > 1 else "") + tail


def rows(document: Document) -> list[CellVerdict]:
    """The cells by weight of their verdict, the worst first, `same` last; within one by ratio."""
    weight = {verdict: i for i, verdict in enumerate(VERDICTS)}
    return sorted(document.cells, key=lambda cell: (weight[cell.verdict], -(cell.ratio or 0), cell.cell_id))


def cell_name(cell: CellVerdict | CellName) -> str:
    """Suite, kernel and sizes of a cell."""
    return " ".join([cell.suite, cell.kernel, *([cell.problem.label()] if cell.problem else [])])


def ratio_text(cell: CellVerdict) -> str:
    """`1.062 (1.041 to 1.080)`; a ratio alone where its processes are too few for an interval."""
    if cell.ratio is None or cell.low is None or cell.high is None:
        return "-"
    if not has_interval(cell):
        return f"{cell.ratio:.3f}"
    return f"{cell.ratio:.3f} ({cell.low:.3f} to {cell.high:.3f})"


def has_interval(cell: CellVerdict) -> bool:
    """Whether its processes were enough for an interval of the confidence that a verdict needs."""
    return (cell.confidence or 0.0) >= (cell.confidence_needed or 0.0) - 1e-9


def remarks(document: Document) -> Iterator[str]:
    """What a reader must know beside the rows: warnings, allowed differences, cells that one side lacks."""
    yield from document.warnings
    for difference in document.differences:
        yield f"{'differs, allowed' if difference.allowed else 'differs'}: {difference.text}"
    for side, cells in (("base", document.only_base), ("head", document.only_head)):
        if cells:
            names = ", ".join(map(cell_name, cells[:MOST_NAMES]))
            more = len(cells) - MOST_NAMES
            rest = f", and {more} more (--json names all)" if more > 0 else ""
            yield f"{len(cells)} cells only in {side}: {names}{rest}"
    if document.not_timed:
        yield f"{len(document.not_timed)} cells without a time in base, such as {document.not_timed[0].kernel}: " + (
            document.not_timed[0].reason or ""
        )
