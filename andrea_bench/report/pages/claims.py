"""Page: the statements that were put to the test, with their findings."""

from andrea_bench.report.content import Page, Part, Subject, Table


def claims(subject: Subject) -> Page:
    """One table of findings, and one of the evidence."""
    title = "Claims"
    if not subject.claims:
        how = "`claims --json > FILE`, then `report --claims FILE`"
        return Page("claims", title, absent=f"no claims were given ({how})")
    findings, evidence = [], []
    for claim in subject.claims:
        name, finding = str(claim.get("id")), _words(claim.get("finding"))
        findings.append((name, finding, str(claim.get("statement")), str(claim.get("condition") or "")))
        for one in claim.get("evidence") or []:
            texts = (one.get(key) for key in ("finding", "how", "on", "text", "source"))
            evidence.append((name, *("" if text is None else _words(text) for text in texts)))
    parts: list[Part] = [Table("Statements and findings", ("id", "finding", "statement", "condition"), findings)]
    if evidence:
        heads = ("id", "finding", "how", "on", "what came out", "source")
        parts.append(Table("Evidence", heads, evidence, folded=True))
    return Page("claims", title, parts)


def _words(value: object) -> str:
    return "not testable here" if value == "not_testable_here" else str(value)
