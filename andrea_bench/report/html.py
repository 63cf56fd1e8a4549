"""A report as one HTML file that opens from disk: charts are SVG within it, nothing is loaded.

All text goes through `escape`; the rows are JSON in which no tag can be; the page's own script is the only one
that its policy lets run.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

import msgspec

from andrea_bench.report import charts
from andrea_bench.report.content import AllRows, Chart, Heading, Page, Part, Said, Table
from andrea_bench.report.words import counted

TITLE = "andrea-bench report"
LONG = 40  # characters of a cell, beyond which its text is broken anywhere
# The whole is to stay below 5 MB; pictures beyond that are left out, but so many of them are drawn in any case.
MOST_BYTES = 4_900_000  # and something for what frames the pictures
PICTURE_BYTES = 1_600_000


def html(pages: Sequence[Page], subtitle: str) -> str:
    """The whole document, with as many of its pictures as it has room for."""
    bare = len(_document(pages, subtitle, {}).encode("utf-8", "replace"))
    return _document(pages, subtitle, _pictures(pages, max(PICTURE_BYTES, MOST_BYTES - bare)))


def _pictures(pages: Sequence[Page], room: int) -> dict[str, str]:
    """The SVG of each Chart by its name, in order, as long as they fit into so many bytes."""
    fitting = {}
    for part in (part for page in pages for part in page.parts if isinstance(part, Chart)):
        picture = charts.svg(part.picture)
        size = len(picture.encode("utf-8", "replace"))
        if size <= room:
            fitting[part.name] = picture
            room -= size
    return fitting


def _document(pages: Sequence[Page], subtitle: str, pictures: Mapping[str, str]) -> str:
    style, script = _own("page.css"), _own("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    shown = [page for page in pages if page.absent is None]
    links = "".join(f'<li><a href="#{page.name}">{escape(page.title)}</a></li>' for page in shown)
    left_out = "".join(f"<li>{escape(p.title)}: {_prose(p.absent)}.</li>" for p in pages if p.absent)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{TITLE}: {escape(subtitle)}</title>\n<link rel="icon" href="data:,">\n<style>\n{style}</style>\n'
        '</head>\n<body>\n<a class="skip" href="#main">Skip to the answers</a>\n'
        f'<header><h1>{TITLE}</h1><p class="soft">{escape(subtitle)}</p>'
        f'<nav aria-label="Pages"><ul>{links}</ul></nav></header>\n<main id="main">\n'
        + "\n".join(_page(page, pictures) for page in shown)
        + (f"\n<h2>Left out</h2><ul>{left_out}</ul>" if left_out else "")
        + f'\n</main>\n<div id="tip" role="tooltip" hidden></div>\n<script>{script}</script>\n</body>\n</html>\n'
    )


def _own(name: str) -> str:
    return resources.files("andrea_bench.report").joinpath(name).read_text(encoding="utf-8")


def _page(page: Page, pictures: Mapping[str, str]) -> str:
    parts = "\n".join(_part(part, pictures) for part in page.parts)
    return f'<section id="{page.name}" aria-labelledby="{page.name}-title">\n' \
           f'<h2 id="{page.name}-title">{escape(page.title)}</h2>\n{parts}\n</section>'  # fmt: skip


def _part(part: Part, pictures: Mapping[str, str]) -> str:
    match part:
        case str():
            return f"<p>{_prose(part)}</p>"
        case Heading():
            return f"<h3>{escape(part.text)}</h3>"
        case Said():
            return _said(part)
        case Table():
            return _table(part)
        case Chart():
            return _chart(part, pictures.get(part.name))
        case AllRows():
            return _all_rows(part)


def _said(said: Said) -> str:
    cells = escape(" ".join(said.cell_ids))
    link = f' <a href="#all-rows" data-cells="{cells}">its rows</a>' if said.cell_ids else ""
    asked = f"<strong>{escape(said.question)}</strong> " if said.question else ""
    return f'<p class="answer">{asked}{escape(said.text)}{link}</p>'


def _table(table: Table, anchor: str | None = None) -> str:
    kinds = [' class="number"' if name in table.numeric else "" for name in table.columns]
    heads = "".join(f'<th scope="col"{k}>{escape(c)}</th>' for c, k in zip(table.columns, kinds, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{k or _long(c)}>{escape(c)}</td>" for c, k in zip(row, kinds, strict=True)) + "</tr>"
        for row in table.rows
    )
    caption = escape(table.caption)
    hidden = "" if not table.folded else ' class="skip"'
    grid = (
        f'<div class="wide" tabindex="0" role="region" aria-label="{caption}">'
        f"<table><caption{hidden}>{caption}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    if not table.folded:
        return grid
    name = f' id="{anchor}"' if anchor else ""
    return f"<details{name}><summary>{caption} ({counted(len(table.rows), 'row')})</summary>{grid}</details>"


def _long(text: str) -> str:
    """Of a text that must be broken so that the others of its row stay in view."""
    return ' class="long"' if len(text) > LONG else ""


def _prose(text: str) -> str:
    """Text of ours; what stands between backticks is a command."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _chart(chart: Chart, picture: str | None) -> str:
    title, about = escape(chart.title), _prose(chart.about)
    drawn = "<p>There is no room for this chart here; <code>report --svg</code> draws it.</p>"
    if picture is not None:
        labelled = picture.replace("<svg ", f'<svg role="group" aria-label="{title}" ', 1)
        drawn = f'<div class="wide" tabindex="0" role="region" aria-label="{title}">{labelled}</div>'
    return (
        f'<figure id="{chart.name}"><figcaption><h3>{title}</h3><p>{about} '
        f'<a href="#{chart.name}-data">Its data</a></p></figcaption>'
        f"{drawn}{_table(chart.data, f'{chart.name}-data')}</figure>"
    )


def _all_rows(rows: AllRows) -> str:
    columns = list(_columns(rows))
    heads = "".join(
        f'<th scope="col" data-column="{at}"{_kind(column)}>'
        f'<button type="button">{escape(column["name"])}</button></th>'
        for at, column in enumerate(columns)
    )
    document = {"count": len(rows.rows), "columns": columns, "shapes": rows.shapes}
    return (
        '<noscript><p>Sorting and filtering need JavaScript; `report --csv` writes the same rows.</p></noscript>'
        '<div class="controls"><label>Filter (words, all must occur; cell_ids, any)'
        '<input type="search" id="rows-search" autocomplete="off"></label>'
        '<label>Status<select id="rows-status"><option value="">all</option></select></label>'
        '<button type="button" id="rows-before">Previous rows</button>'
        '<button type="button" id="rows-after">Next rows</button></div>'
        '<p id="rows-said" role="status"></p>'
        '<div class="wide" tabindex="0" role="region" aria-label="All rows"><table id="rows-table">'
        '<caption>All rows; a head sorts by its column</caption>'
        f'<thead><tr>{heads}<th scope="col">samples</th></tr></thead><tbody></tbody></table></div>'
        f'<script type="application/json" id="rows-data">{embedded(document)}</script>'
    )  # fmt: skip


def _kind(column: dict[str, Any]) -> str:
    return ' class="number"' if column["number"] else ""


def _columns(rows: AllRows) -> Iterator[dict[str, Any]]:
    """Column by column; text that repeats is written once."""
    for at, name in enumerate(rows.columns):
        values = [row[at] for row in rows.rows]
        number = not any(isinstance(value, str) for value in values)
        words = list(dict.fromkeys(values))
        if number or 2 * len(words) > len(values):
            yield {"name": name, "number": number, "values": values}
        else:
            place = {word: at for at, word in enumerate(words)}
            yield {"name": name, "number": False, "words": words, "at": [place[value] for value in values]}


def embedded(document: Any) -> str:
    """Strict JSON (what is no number is null) that can stand within a script element, whatever its texts hold."""
    text = msgspec.json.encode(document).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
