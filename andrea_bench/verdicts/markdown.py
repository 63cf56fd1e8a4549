"""A Document as Markdown, for a job summary or a comment on a pull request."""

from andrea_bench.verdicts.document import Document
from andrea_bench.verdicts.wording import MOST_ROWS, cell_name, headline, ratio_text, remarks, rows

# Whatever some reader takes for the end of a line.
LINES = str.maketrans(dict.fromkeys("\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029", " "))
# What a terminal that shows the file would obey.
LINES |= {code: 0xFFFD for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in LINES and chr(code) != "\t"}
# What starts markup, a formula or a mention, or ends a table's cell: as in reports (a test keeps the two equal).
SPECIAL = str.maketrans({c: "\\" + c for c in "\\`*_{}[]<>#|~@!$&"} | LINES)


def markdown(document: Document) -> str:
    """Headline, remarks and a table; the cells beyond the fiftieth are counted, not shown."""
    lines = [f"**{_plain(headline(document))}**", ""]
    lines += [f"- {_plain(remark)}" for remark in remarks(document)]
    shown = rows(document)[:MOST_ROWS]
    if shown:
        lines += ["", "| verdict | cell | head / base | reason | likely causes |", "|---|---|---|---|---|"]
    for cell in shown:
        texts = (
            cell.verdict.replace("_", " "), cell_name(cell), ratio_text(cell), cell.reason,
            "; ".join(cell.likely_causes),
        )  # fmt: skip
        lines.append("| " + " | ".join(_plain(text) for text in texts) + " |")
    if len(document.cells) > len(shown):
        lines += ["", f"and {len(document.cells) - len(shown)} cells more"]
    policy = document.policy
    lines += [
        "",
        f"Allowance {100 * policy.max_slowdown:g} %, confidence {100 * policy.confidence:g} % over all cells.",
    ]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return text.translate(SPECIAL)
