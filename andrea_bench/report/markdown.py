"""A report as Markdown for a pull request: details folded, tables cut so that all fits in 60,000 characters."""

from collections.abc import Iterator, Mapping, Sequence, Set
from html import escape
from urllib.parse import quote

from andrea_bench.report.content import AllRows, Chart, Heading, Page, Part, Said, Table
from andrea_bench.report.words import ABSENT, counted

# GitHub refuses a comment of more than 65,536 characters (so says the error of its API).
MOST_CHARACTERS = 60_000
# How many rows a table may show, tried in turn until the whole fits.
ROW_LIMITS = (100, 50, 25, 12, 6, 3, 0)
# Whatever some reader takes for the end of a line.
LINES = str.maketrans(dict.fromkeys("\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029", " "))
# What a terminal that shows the file would obey.
LINES |= {code: 0xFFFD for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in LINES and chr(code) != "\t"}
# What starts markup, a formula or a mention, or ends a table's cell.
SPECIAL = str.maketrans({c: "\\" + c for c in "\\`*_{}[]<>#|~@!$&"} | LINES)
# Of all rows, what a reader of Markdown needs.
ROW_COLUMNS = (
    "run", "suite", "kernel", "problem", "device", "status", "time (us)", "low (us)", "high (us)", "n",
    "ratio to baseline", "validity", "cell_id",
)  # fmt: skip
ROW_NUMBERS = frozenset(ROW_COLUMNS[6:11])
END = "The rest does not fit here; the HTML report holds all."


def markdown(pages: Sequence[Page], subtitle: str, pictures: Mapping[str, str]) -> str:
    """The whole document. pictures: by name of the Chart, where its SVG lies as seen from this document."""
    for limit in ROW_LIMITS:
        blocks = list(_document(pages, subtitle, pictures, limit))
        if _length(blocks) < MOST_CHARACTERS:
            return "\n\n".join(blocks) + "\n"
    while _length(blocks) > MOST_CHARACTERS - len(END) - 10:
        blocks.pop()
    return "\n\n".join([*blocks, END]) + "\n"


def _length(blocks: Sequence[str]) -> int:
    return sum(len(block) + 2 for block in blocks)


def _document(pages: Sequence[Page], subtitle: str, pictures: Mapping[str, str], limit: int) -> Iterator[str]:
    """Blocks that stand on their own: none opens what another closes."""
    cited = {cell for page in pages for part in page.parts if isinstance(part, Said) for cell in part.cell_ids}
    yield "# andrea-bench report"
    yield _plain(subtitle)
    for page in pages:
        if page.absent is None:
            yield f"## {_plain(page.title)}"
            for part in page.parts:
                yield from _part(part, pictures, cited, limit)
    left_out = [f"- {_plain(page.title)}: {_plain(page.absent)}" for page in pages if page.absent]
    if left_out:
        yield "## Left out"
        yield "\n".join(left_out)


def _part(part: Part, pictures: Mapping[str, str], cited: Set[str], limit: int) -> Iterator[str]:
    match part:
        case str():
            yield _plain(part)
        case Heading():
            yield f"### {_plain(part.text)}"
        case Said():
            cells = f" (cells {', '.join(part.cell_ids)})" if part.cell_ids else ""
            asked = f"**{_plain(part.question)}** " if part.question else ""
            yield f"- {asked}{_plain(part.text)}{_plain(cells)}"
        case Table():
            yield _table(part, limit)
        case Chart():
            yield f"**{_plain(part.title)}**"
            yield _plain(part.about)
            if part.name in pictures:
                yield f"![{_plain(part.title)}]({_address(pictures[part.name])})"
            yield _table(part.data, limit)
        case AllRows():
            yield _all_rows(part, cited, limit)


def _table(table: Table, limit: int) -> str:
    shown = table.rows[:limit]
    marks = ["---:" if column in table.numeric else "---" for column in table.columns]
    lines = [_line(table.columns), f"|{'|'.join(marks)}|", *map(_line, shown)]
    hidden = len(table.rows) - len(shown)
    more = f"\n\nand {counted(hidden, 'row')} more" if hidden else ""
    body = "\n".join(lines) if shown else ""
    if not table.folded:
        return f"{_plain(table.caption)}\n\n{body}{more}"
    # The line of the summary is HTML, the lines below it are Markdown again.
    summary = f"{escape(table.caption)} ({counted(len(table.rows), 'row')})".translate(LINES)
    return f"<details><summary>{summary}</summary>\n\n{body}{more}\n\n</details>"


def _all_rows(rows: AllRows, cited: Set[str], limit: int) -> str:
    """Where not all can be shown, those that a sentence cites come first and are more than the limit, if need be."""
    places = [rows.columns.index(name) for name in ROW_COLUMNS]
    texts = [tuple(_figure(row[place]) for place in places) for row in rows.rows]
    caption = "All rows"
    if limit and len(texts) > limit:
        caption += ", first those that the answers cite"
        texts.sort(key=lambda row: row[-1] not in cited)
        limit = max(limit, min(ROW_LIMITS[0], sum(row[-1] in cited for row in texts)))
    return _table(Table(caption, ROW_COLUMNS, texts, ROW_NUMBERS, folded=True), limit)


def _figure(value: str | float | int | None) -> str:
    return ABSENT if value is None else str(value)


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(map(_plain, texts))} |"


def _address(path: str) -> str:
    """A path as a link's address: spaces, parentheses and bytes that are no text would end it or break it."""
    return quote(path.encode("utf-8", "surrogateescape"))


def _plain(text: str) -> str:
    return text.translate(SPECIAL)
