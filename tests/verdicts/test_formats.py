"""A Document in every form: the outcome that none may lose, hostile names, and what one side lacks."""

import io
import re
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from rich.console import Console
from verdict_runs import BASE, WriteRun, judged, make_record, times

from andrea_bench.record import Record
from andrea_bench.report.markdown import SPECIAL as REPORT_SPECIAL
from andrea_bench.verdicts import Document, Policy
from andrea_bench.verdicts.annotations import annotations
from andrea_bench.verdicts.junit import junit
from andrea_bench.verdicts.markdown import SPECIAL, markdown
from andrea_bench.verdicts.table import print_document
from andrea_bench.verdicts.wording import remarks

# Cases C31, C32 and RP03, and what could start a line of its own or steer a terminal.
NASTY = [
    "</SCRIPT><img src=x onerror=alert(1)>", 'a"b', "a|b\n`c`", "gpu.name[0]", "$x$", "&lt;b&gt;", "[red]x[/]", "[/a]",
    "rig :fire: 1", "x\u2028y\x85z\v", "r\r\n::error title=no::forged", "n\n##vso[task.complete result=Failed]",
    "t\n##teamcity[buildStop]", "\x1b[2Jcleared\x07", "100% a:b,c;d", "back\\", "a'b", "*_~#@someone", "Zürich-β",
]  # fmt: skip


def visible(name: str) -> str:
    """What a line shows of a name: the ends of lines are spaces, what steers a terminal is spelt out."""
    return " ".join(name.splitlines()).replace("\x1b", "\\x1b").replace("\x07", "\\x07")


@pytest.fixture
def nasty(write_run: WriteRun) -> Document:
    """A slower cell of each name, whose reason and likely cause hold the name too."""
    base = [make_record(name, BASE, selected_backend="flash") for name in NASTY]
    head = [make_record(name, times(1.5), selected_backend=name) for name in NASTY]
    document = judged(write_run, base, head)
    for cell, name in zip(document.cells, NASTY, strict=True):
        cell.reason = f"{cell.reason}; {name}"
    return document


def printed(document: Document, columns: int = 400) -> str:
    out = io.StringIO()
    print_document(Console(file=out, width=columns, color_system=None, emoji=False, highlight=False), document)
    return out.getvalue()


def test_hostile_names_are_shown_as_they_are_on_a_terminal(nasty: Document) -> None:
    text = printed(nasty)
    assert all(c == "\n" or c.isprintable() for c in text)
    lines = [line.strip() for line in text.split("\n")]
    for name in NASTY:
        # Its name beside the verdict, its reason, and what was selected.
        assert sum(visible(name).rstrip() in line for line in lines) >= 3, name
    assert not [line for line in lines if line.startswith(("::", "##"))]
    # A head line, and three lines a cell, then the whole.
    assert len(lines) == 1 + 3 * len(NASTY) + 1 + 1


@pytest.mark.parametrize("system", ["github", "azure", "teamcity"])
def test_hostile_names_are_one_annotation_each(nasty: Document, system: str) -> None:
    start = {"github": "::error title=", "azure": "##vso[task.logissue type=error]", "teamcity": "##teamcity[message "}
    by_name = {cell.kernel: cell for cell in nasty.cells}
    seen = set()
    for name in NASTY:
        lines = list(annotations(Document(**{**_fields(nasty), "cells": [by_name[name]]}), system))
        assert len(lines) == 2
        for line in lines:
            assert line.isprintable() and line.startswith(start[system])
        seen.add(lines[1])
        if system == "github":
            title, _, told = lines[1].removeprefix("::error title=").partition("::")
            assert ":" not in title and "," not in title
            assert visible(name).rstrip() in unquote(title) and unquote(told).endswith(visible(name))
        elif system == "teamcity":
            # Every bracket, bar and quote of the text is escaped.
            text = re.fullmatch(r"##teamcity\[message text='(.*)' status='ERROR'\]", lines[1])
            assert text and not re.search(r"['\[\]]", re.sub(r"\|.", "", text[1]))
    assert len(seen) == len(NASTY)


def _fields(document: Document) -> dict[str, object]:
    return {name: getattr(document, name) for name in document.__struct_fields__}


def test_hostile_names_keep_a_markdown_table_whole(nasty: Document) -> None:
    text = markdown(nasty)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(NASTY)
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}
    assert len(text.splitlines()) == len(rows) + 5  # headline, and the policy below the table
    cells = [row for row in rows if row.startswith("| slower")]
    # Nothing is left that starts markup, a formula, an entity or a mention.
    for row in cells:
        assert not re.search(r"(?<!\\)(?:\\\\)*[<>$&`*_\[\]@#~]", row), row
    assert any("\\$x\\$" in row for row in cells) and any("\\&lt;b\\&gt;" in row for row in cells)


def test_a_markdown_file_holds_nothing_that_a_terminal_obeys(nasty: Document) -> None:
    nasty.cells[0].kernel = "a\x1b[2Jb\x9bc\x00"
    text = markdown(nasty)
    assert not [c for c in text if (c < " " and c not in "\n\t") or "\x7f" <= c < "\xa0"]
    assert "a\ufffd" in text


def test_names_are_escaped_as_in_reports() -> None:
    """Neither layer may import the other; what one learns the other must."""
    assert SPECIAL == REPORT_SPECIAL


def test_hostile_names_survive_junit(nasty: Document) -> None:
    suite = ElementTree.fromstring(junit(nasty))
    for case, name in zip(suite.findall("testcase")[1:], NASTY, strict=True):
        told = "".join(c if c == "\n" or c >= " " else "\ufffd" for c in name)
        assert told in " ".join(case.itertext())


# ---- the outcome in JUnit -------------------------------------------------------------------------------
ONE = [100.0]
OUTCOMES: dict[str, tuple[list[Record], list[Record], Policy, str | None, int]] = {
    "all good": ([make_record("a", BASE)], [make_record("a", times(1.0))], Policy(), None, 0),
    "slower": ([make_record("a", BASE)], [make_record("a", times(1.5))], Policy(), "failure", 1),
    "no common cell": ([make_record("a")], [make_record("b", BASE)], Policy(), "error", 3),
    "none could run": ([make_record("a")], [make_record("a")], Policy(), "error", 3),
    "none is left": ([make_record("a", BASE)], [make_record("b")], Policy(allow_missing=True), "skipped", 0),
    "undecided": ([make_record("a", ONE)], [make_record("a", [100.5])], Policy(), "error", 3),
    "undecided fails": (
        [make_record("a", ONE)], [make_record("a", [100.5])], Policy(on_inconclusive="fail"), "failure", 1,
    ),
    "undecided passes": (
        [make_record("a", ONE)], [make_record("a", [100.5])], Policy(on_inconclusive="pass"), "skipped", 0,
    ),
    "invalid": (
        [make_record("a", BASE)], [make_record("a", times(1.0), status="throttled", reason="hot")],
        Policy(on_inconclusive="pass"), "error", 3,
    ),
    "not comparable": (
        [make_record("a", BASE)], [make_record("a", times(1.0), cache="cold")], Policy(on_inconclusive="pass"),
        "error", 3,
    ),
    "wrong and new": (
        [make_record("a", BASE)], [make_record("b", status="wrong", reason="off")], Policy(), "failure", 5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTCOMES)
def test_junit_holds_the_outcome_of_the_whole(write_run: WriteRun, case: str) -> None:
    """Verdict, reason and exit code stand in the first test case, and its kind fits the code: a file without any, or
    with cells alone, would read as a pass."""
    base, head, policy, kind, exit_code = OUTCOMES[case]
    document = judged(write_run, base, head, policy)
    assert document.exit_code == exit_code
    suite = ElementTree.fromstring(junit(document))
    whole, *cells = suite.findall("testcase")
    assert (whole.get("classname"), len(cells)) == ("andrea-bench", len(document.cells))
    said = whole.findtext("system-out") or ""
    assert said.startswith(document.verdict.replace("_", " ") + ": ") and document.reason in said
    assert said.endswith(f"(exit {exit_code})")
    assert [child.tag for child in whole] == ([kind] if kind else []) + ["system-out"]
    if kind:
        assert whole[0].get("message") == said
    assert {child.tag for cell in cells for child in cell} <= {kind}
    tags = [child.tag for one in (whole, *cells) for child in one]
    counted = {name: int(suite.get(name) or 0) for name in ("tests", "failures", "errors", "skipped")}
    assert counted == {
        "tests": 1 + len(cells), "failures": tags.count("failure"), "errors": tags.count("error"),
        "skipped": tags.count("skipped"),
    }  # fmt: skip
    # Nothing fails below a pass, nor is all green below a failure.
    assert (counted["failures"] + counted["errors"] > 0) == (exit_code != 0)


# ---- what only one side has -----------------------------------------------------------------------------
@pytest.mark.parametrize(("cells", "named", "rest"), [(1, 1, ""), (20, 20, ""), (23, 20, ", and 3 more")])
def test_cells_that_one_side_lacks_are_named(write_run: WriteRun, cells: int, named: int, rest: str) -> None:
    names = [f"kernel_{i:02}" for i in range(cells)]
    base = [make_record("a", BASE), *(make_record(f"base_{name}", BASE) for name in names)]
    head = [make_record("a", times(1.0)), *(make_record(f"head_{name}", BASE) for name in names)]
    document = judged(write_run, base, head, Policy(allow_missing=True))
    assert len(document.only_base) == len(document.only_head) == cells
    for side in ("base", "head"):
        (told,) = [text for text in remarks(document) if f"only in {side}" in text]
        assert told.startswith(f"{cells} cells only in {side}: ") and (rest in told if rest else "more" not in told)
        assert [name for name in names if f" {side}_{name} " in told] == names[:named]
        for text in (printed(document, columns=4000), markdown(document).replace("\\", "")):
            assert told in text
