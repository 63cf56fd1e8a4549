"""A Document as JUnit XML, which CI systems show as test results."""

from collections import Counter
from typing import Literal
from xml.etree import ElementTree

from andrea_bench.verdicts.document import CellVerdict, Document, Verdict
from andrea_bench.verdicts.outcome import REGRESSION, WRONG
from andrea_bench.verdicts.wording import cell_name, headline, remarks

Kind = Literal["failure", "error", "skipped"]  # of a test case that did not pass
COUNTS: dict[Kind, str] = {"failure": "failures", "error": "errors", "skipped": "skipped"}
UNDECIDED: dict[str, Kind] = {"report": "error", "fail": "failure", "pass": "skipped"}  # by Policy.on_inconclusive


def junit(document: Document) -> bytes:
    """One test suite: a test case for the whole, then one for each cell. slower and broken are failures; what could
    not be decided is an error, or skipped where the policy lets it pass.

    The first holds verdict, reason and exit code: cells alone, where there are none or all are good, would read as
    a pass whatever the exit code."""
    suite = ElementTree.Element("testsuite", name="andrea-bench gate")
    said = headline(document)
    whole = _case(suite, "andrea-bench", "the whole gate")
    _mark(whole, _kind_of_whole(document), document.verdict, said, [*remarks(document)])
    ElementTree.SubElement(whole, "system-out").text = _text(said)
    for cell in document.cells:
        said = f"{cell.verdict.replace('_', ' ')}: {cell.reason}"
        case = _case(suite, cell.suite, cell_name(cell))
        _mark(case, _kind(cell, document), cell.verdict, said, [cell.reason, *cell.likely_causes])
    counts = Counter(child.tag for case in suite for child in case)
    suite.set("tests", str(len(suite)))
    for kind, attribute in COUNTS.items():
        suite.set(attribute, str(counts[kind]))
    ElementTree.indent(suite)
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)) + b"\n"


def _kind_of_whole(document: Document) -> Kind | None:
    """failure: the gate failed; error: it could not decide; skipped: it passed, but not because all was compared."""
    if document.exit_code == 0:
        return "skipped" if document.verdict == "inconclusive" or not document.cells else None
    return "failure" if document.exit_code in (REGRESSION, WRONG) else "error"


def _kind(cell: CellVerdict, document: Document) -> Kind | None:
    if cell.verdict in ("slower", "broken"):
        return "failure"
    if cell.verdict == "inconclusive" and not cell.invalid:
        return UNDECIDED[document.policy.on_inconclusive]
    return "error" if cell.verdict in ("inconclusive", "not_comparable") else None


def _case(suite: ElementTree.Element, classname: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=_text(classname), name=_text(name))


def _mark(case: ElementTree.Element, kind: Kind | None, verdict: Verdict, message: str, lines: list[str]) -> None:
    """Say of a test case that it did not pass, and why; nothing where `kind` is None."""
    if kind is None:
        return
    told = ElementTree.SubElement(case, kind, message=_text(message))
    if kind != "skipped":
        told.set("type", verdict)
    told.text = _text("\n".join(lines))


def _text(text: str) -> str:
    """`text` without the characters that XML 1.0 can't hold (control characters, lone surrogates)."""
    return "".join(
        c if c in "\t\n" or (c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff") else "\ufffd"
        for c in text
    )
