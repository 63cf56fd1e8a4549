"""The Markdown page and the terminal's lines of all findings."""

from collections.abc import Iterable, Sequence

from andrea_bench.claims.finding import Claim

MOST_LINES = 8


def markdown(claims: Sequence[Claim], command: str, machine: str) -> str:
    """A page: the findings in one table, then what each rests on. command: what made it."""
    lines = ["# What holds of the statements", "", f"Written by `{command}` on {machine}.", ""]
    lines += _table(
        ("statement", "id", "finding", "condition"),
        ([one.statement, one.id, one.finding, one.condition or ""] for one in claims),
    )
    for one in claims:
        lines += ["", f"## {one.id}: {one.finding}", "", one.statement + ".", ""]
        if one.condition:
            lines += [f"{one.condition}.", ""]
        lines += _table(
            ("on", "how", "finding", "what came out"),
            ([e.on, e.how, e.finding, e.text + (f" [{e.source}]" if e.source else "")] for e in one.evidence),
        )
    return "\n".join(lines) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    made = ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |"]
    return made + ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]


def _cell(text: str) -> str:
    for raw, escaped in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("\n", " ")):
        text = text.replace(raw, escaped)
    return text


def lines(claims: Sequence[Claim]) -> list[str]:
    """The findings for a terminal: each with its condition and the first of its evidence."""
    said = []
    for one in claims:
        said.append(f"{one.id}: {one.finding}. {one.statement}")
        if one.condition:
            said.append(f"  {one.condition}")
        for e in one.evidence[:MOST_LINES]:
            said.append(f"  - {e.on} ({e.how}, {e.finding}): {e.text}")
        if len(one.evidence) > MOST_LINES:
            said.append(f"  ... and {len(one.evidence) - MOST_LINES} more (--json and --markdown have all)")
        said.append("")
    return said
