"""The pages of a report, in order. Adding one is a file here with a function, and its line below."""

from collections.abc import Callable

from andrea_bench.report.content import Page, Subject
from andrea_bench.report.pages.alignment import alignment
from andrea_bench.report.pages.answers import answers_first
from andrea_bench.report.pages.claims import claims
from andrea_bench.report.pages.comparison import comparison
from andrea_bench.report.pages.energy import energy
from andrea_bench.report.pages.fusing import fusing
from andrea_bench.report.pages.history import history
from andrea_bench.report.pages.machine import machine
from andrea_bench.report.pages.roofline import roofline
from andrea_bench.report.pages.rows import all_rows
from andrea_bench.report.pages.splits import splits
from andrea_bench.report.pages.stages import stages
from andrea_bench.report.pages.structure import structure

PAGES: tuple[Callable[[Subject], Page], ...] = (
    answers_first,
    machine,
    fusing,
    splits,
    alignment,
    stages,
    roofline,
    structure,
    claims,
    comparison,
    energy,
    history,
    all_rows,
)


def pages(subject: Subject) -> list[Page]:
    """Every page, those without data too (their `absent` says why)."""
    return [page(subject) for page in PAGES]
