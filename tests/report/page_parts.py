"""A page of a report as tests look at it: its charts, and the values behind their marks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from andrea_bench.report.content import Chart, CompiledFacts, Page, Subject
from andrea_bench.report.pages import pages
from andrea_bench.report.subject import read_runs


def page(name: str, *runs: Path, facts: CompiledFacts | None = None, ceiling: Any = lambda head: None) -> Page:
    made = pages(Subject(read_runs(runs, ceiling), facts, "andrea-bench report"))
    return next(one for one in made if one.name == name)


def charts(one: Page) -> list[Chart]:
    return [part for part in one.parts if isinstance(part, Chart)]


def marks(chart: Chart, kind: str) -> list[dict[str, Any]]:
    """The values behind the marks of that kind, layer by layer."""
    return list(_marks(chart.picture.to_dict(validate=False), kind, []))


def _marks(layer: dict[str, Any], kind: str, values: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    values = layer.get("data", {}).get("values", values)  # a layer without data of its own has its parent's
    mark = layer.get("mark", {})
    if (mark if isinstance(mark, str) else mark["type"] if mark else None) == kind:
        yield from values
    for inner in layer.get("layer", []):
        yield from _marks(inner, kind, values)
