"""A Document as JUnit XML, which CI systems show as test results."""

from xml.etree import ElementTree

from andrea_bench.verdicts.document import CellVerdict, Document
from andrea_bench.verdicts.wording import cell_name, headline


def junit(document: Document) -> bytes:
    """One test suite, a test case for each cell. slower and broken are failures; what could not be decided
    is an error, or skipped where the policy lets it pass."""
    undecided = {"report": "error", "fail": "failure", "pass": "skipped"}[document.policy.on_inconclusive]
    kinds = {"slower": "failure", "broken": "failure", "inconclusive": undecided, "not_comparable": "error"}
    suite = ElementTree.Element("testsuite", name="andrea-bench gate", tests=str(len(document.cells)))
    counts = {"failure": 0, "error": 0, "skipped": 0}
    for cell in document.cells:
        case = ElementTree.SubElement(suite, "testcase", classname=_text(cell.suite), name=_text(cell_name(cell)))
        kind = kinds.get(cell.verdict)
        if kind:
            counts[kind] += 1
            told = ElementTree.SubElement(case, kind, message=_text(_message(cell)))
            if kind != "skipped":
                told.set("type", cell.verdict)
            told.text = _text("\n".join([cell.reason, *cell.likely_causes]))
    for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(counts[kind]))
    ElementTree.SubElement(suite, "system-out").text = _text(headline(document))
    ElementTree.indent(suite)
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)) + b"\n"


def _message(cell: CellVerdict) -> str:
    return f"{cell.verdict.replace('_', ' ')}: {cell.reason}"


def _text(text: str) -> str:
    """`text` without the characters that XML 1.0 can't hold (control characters, lone surrogates)."""
    return "".join(
        c if c in "\t\n" or (c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff") else "\ufffd"
        for c in text
    )
