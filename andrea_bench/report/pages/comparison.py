"""Page: two or more Runs, each against the first, by the verdicts of `compare`."""

from typing import Any

from andrea_bench.report import charts
from andrea_bench.report.content import (
    Chart,
    ComparedCell,
    Comparison,
    Heading,
    MeasuredRun,
    Page,
    Part,
    Said,
    Subject,
    Table,
)
from andrea_bench.report.pages.marks import anchor, n_of
from andrea_bench.report.words import ABSENT

MOST_MARKS = 40
MOST_CELLS = 1000  # of a table; an HTML file is to stay below 5 MB
# By Okabe and Ito, as in charts.py: what got worse in red and orange, what got better in blue.
COLOURS = {"broken": "#D55E00", "slower": "#D55E00", "faster": "#0072B2", "same": "#8C8C8C",
           "inconclusive": "#E69F00", "not comparable": "#CC79A7"}  # fmt: skip
CELL_HEADS = ("cell", "head / base", "verdict", "reason", "processes", "cell_id")


def comparison(subject: Subject) -> Page:
    """What the Runs are, then for each but the first its verdicts against it."""
    title = "Comparison of Runs"
    if len(subject.runs) < 2:
        return Page("comparison", title, absent="fewer than two Runs were given (`report RUN RUN…`)")
    parts: list[Part] = [
        "Each Run against the first. A ratio is head time over base time, above 1 is slower; the verdicts are those of "
        "`compare`, by intervals over processes.",
        _what_they_are(subject.runs),
    ]
    for number, one in enumerate(subject.comparisons, 1):
        parts += _against_the_first(one, number)
    return Page("comparison", title, parts)


def _what_they_are(runs: list[MeasuredRun]) -> Table:
    rows = []
    for run in runs:
        environment = run.head.environment
        git = environment.get("git") or {}
        revision = str(git.get("commit") or "not known")[:12] + (" (changed)" if git.get("dirty") else "")
        libraries = environment.get("libraries") or {}
        versions = ", ".join(f"{name} {libraries[name]}" for name in ("torch", "triton") if libraries.get(name))
        threads, processes = (str(run.head.protocol.get(name, "-")) for name in ("threads", "processes"))
        rows.append((run.label, run.head.started_at[:16], revision, versions, threads, processes, str(len(run.rows()))))
    heads = ("Run", "started", "revision", "versions", "threads", "processes", "cells")
    return Table("The Runs, the first is the base", heads, rows, frozenset({"threads", "processes", "cells"}))


def _against_the_first(one: Comparison, number: int) -> list[Part]:
    parts: list[Part] = [Heading(f"{one.head} against {one.base}"), Said(f"{one.headline}."), *one.remarks]
    if not one.cells:
        return parts
    if len(one.cells) > MOST_CELLS:
        hidden = len(one.cells) - MOST_CELLS
        parts.append(f"{hidden} of {len(one.cells)} cells are hidden; `compare --json` has all.")
    rows = [
        (cell.name, cell.ratio_text, cell.verdict, cell.reason, _processes(cell), cell.cell_id)
        for cell in one.cells[:MOST_CELLS]
    ]
    table = Table("Cells, the worst first", CELL_HEADS, rows, frozenset({"head / base", "processes"}), folded=True)
    with_ratio = [cell for cell in one.cells[:MOST_CELLS] if cell.ratio is not None]
    return [*parts, _chart(one, with_ratio, table, anchor("comparison", number)) if with_ratio else table]


def _chart(one: Comparison, with_ratio: list[ComparedCell], table: Table, name: str) -> Chart:
    """The first MOST_MARKS of the cells of the table that have a ratio."""
    drawn = with_ratio[:MOST_MARKS]
    left = len(with_ratio) - len(drawn)
    bare = sum(cell.low is None for cell in drawn)
    names, common = _short([cell.name for cell in drawn])
    about = [
        "Head time over base time of each cell, below 1 is faster; the axis is logarithmic.",
        f"{n_of(n for cell in drawn for n in cell.n)} processes a side.",
        "Lines: the interval at the confidence that its verdict needs." if bare < len(drawn) else "",
        f"{bare} points have no interval: too few processes (`sweep --processes`)." if bare else "",
        f"All are {common}." if common else "",
        f"The worst {len(drawn)} are drawn, {left} more are in the table." if left else "",
    ]
    return Chart(
        name,
        f"Ratios of {one.head} to {one.base}",
        " ".join(filter(None, about)),
        charts.ratios(list(map(_mark, drawn, names)), "head time / base time", COLOURS),
        table,
    )


def _processes(cell: ComparedCell) -> str:
    return f"{cell.n[0]} and {cell.n[1]}" if any(cell.n) else ABSENT


def _short(names: list[str]) -> tuple[list[str], str]:
    """The names without the words that all have at the same place, and those words."""
    words = [name.split(" ") for name in names]
    if len(names) < 2 or len({len(one) for one in words}) > 1:
        return names, ""
    places = list(zip(*words, strict=True))
    kept = [at for at, there in enumerate(places) if at < 2 or len(set(there)) > 1]  # suite and kernel always
    common = " ".join(there[0] for at, there in enumerate(places) if at not in kept)
    return [" ".join(one[at] for at in kept) for one in words], common


def _mark(cell: ComparedCell, name: str) -> dict[str, Any]:
    return {
        "name": name, "kind": cell.verdict, "value": cell.ratio,
        "low": cell.ratio if cell.low is None else cell.low, "high": cell.ratio if cell.high is None else cell.high,
        "about": f"{cell.name}: head / base {cell.ratio_text}, {cell.verdict}: {cell.reason}; cell_id {cell.cell_id}",
    }  # fmt: skip
