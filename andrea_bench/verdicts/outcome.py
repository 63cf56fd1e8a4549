"""From the cells' verdicts to the one of the whole, its exit code and the reason that won."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from andrea_bench.record import Record
from andrea_bench.statistics import median
from andrea_bench.verdicts.document import VERDICTS, CellVerdict, Document, Verdict
from andrea_bench.verdicts.policy import Policy

REGRESSION, NOT_DECIDED, WRONG = 1, 3, 5  # exit codes of DESIGN.md section 4.1
UNDECIDED = {"report": NOT_DECIDED, "fail": REGRESSION, "pass": 0}  # by Policy.on_inconclusive
UNIT_FACTOR = 1000.0  # between two units of time
UNIT_NEARNESS = 0.03  # of a ratio's power of it: within 23 %


def conclude(document: Document, wrong: Sequence[Record]) -> None:
    """Set verdict, exit code and reason of the whole. wrong: head's Records with wrong results."""
    _look_at_units(document)
    if any(d.name == "device" for d in document.differences):
        _take_back_verdicts(document, {record.cell_id for record in wrong})
    counts = Counter(cell.verdict for cell in document.cells)
    document.verdict, document.exit_code = _outcome(document, counts, bool(wrong))
    document.reason = _reason(document, counts, len(wrong))


def _take_back_verdicts(document: Document, wrong: set[str]) -> None:
    """Across devices a ratio is shown, but nothing passes or fails by it; wrong results are wrong on any."""
    if all(d.allowed for d in document.differences if d.name == "device"):
        document.warnings.append("the devices differ: ratios are shown, but nothing passes or fails by them")
    for cell in document.cells:
        if cell.verdict != "not_comparable" and cell.cell_id not in wrong:
            cell.reason = "the devices differ: " + (cell.reason if cell.ratio is None else "a ratio, no verdict")
            cell.verdict, cell.processes_needed = "not_comparable", None


def _outcome(document: Document, counts: Counter[Verdict], wrong: bool) -> tuple[Verdict, int]:
    policy = document.policy
    if wrong:
        return "broken", WRONG
    if any(d.name == "device" for d in document.differences):
        return "not_comparable", NOT_DECIDED
    if counts["broken"] or counts["slower"]:
        return ("broken" if counts["broken"] else "slower"), REGRESSION
    if counts["not_comparable"]:
        return "not_comparable", NOT_DECIDED
    if not document.cells:
        passes = policy.allow_missing and document.only_base
        return ("same", 0) if passes else ("inconclusive", NOT_DECIDED)
    if counts["inconclusive"]:
        return "inconclusive", _undecided(document.cells, policy)
    return ("faster" if counts["faster"] else "same"), 0


def _undecided(cells: Iterable[CellVerdict], policy: Policy) -> int:
    """The exit code of undecided cells: the policy's, but 3 of invalid ones; of several, by precedence."""
    codes = {
        NOT_DECIDED if cell.invalid else UNDECIDED[policy.on_inconclusive]
        for cell in cells
        if cell.verdict == "inconclusive"
    }
    return next(code for code in (REGRESSION, NOT_DECIDED, 0) if code in codes)


def _reason(document: Document, counts: Counter[Verdict], wrong: int) -> str:
    """Why this outcome won, and what else there is."""
    told = ", ".join(f"{counts[verdict]} {verdict.replace('_', ' ')}" for verdict in VERDICTS if counts[verdict])
    if wrong:
        return f"{wrong} cells give wrong results in head; of all: {told}"
    if document.verdict == "not_comparable":
        return "; ".join(filter(None, [*_incomparable(document), told]))
    if not document.cells:
        untimed = len(document.not_timed)
        return f"nothing to compare: {f'no time in base for {untimed} cells' if untimed else 'no cell is in both'}"
    invalid = sum(cell.invalid for cell in document.cells if cell.verdict == "inconclusive")
    if invalid and document.verdict == "inconclusive":
        return f"{told}; {invalid} of them invalid or throttled, which no --on-inconclusive lets pass"
    return told


def _incomparable(document: Document) -> Iterator[str]:
    """What forbids a verdict, and which option overrides it."""
    found = [d for d in document.differences if d.name == "device" or not d.allowed]
    yield from dict.fromkeys(d.text for d in found)
    if any(not d.allowed for d in found):
        yield "--allow-different NAME compares all the same"
    if not found:
        yield next(cell.reason for cell in document.cells if cell.verdict == "not_comparable")


def _look_at_units(document: Document) -> None:
    """Times a thousand times off in every cell are another unit, not a slowdown; not so where one program took
    those of both sides."""
    if document.policy.paired:
        return
    ratios = [cell.ratio for cell in document.cells if cell.ratio is not None]
    if not ratios:
        return
    power = round(math.log(median(ratios), UNIT_FACTOR))
    if power and all(abs(math.log(r, UNIT_FACTOR) - power) < UNIT_NEARNESS for r in ratios):
        for cell in document.cells:
            if cell.ratio is not None:
                _refuse_units(cell, power)


def _refuse_units(cell: CellVerdict, power: int) -> None:
    cell.verdict = "not_comparable"
    cell.reason = (
        f"every time in head is about {UNIT_FACTOR**power:g} times that in base: one of them is not in microseconds"
    )
