"""What every kind of chart says (unit, n, interval, scale) and what its marks say (exact figures, unit, cell), as
drawn."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

import pytest
from made_up import FIXTURES, RUN, changed_run, in_processes, on_h200

from andrea_bench.cli.report import _pages
from andrea_bench.report.charts import heat, svg
from andrea_bench.report.content import Chart

G, PATH, TEXT = (f"{{http://www.w3.org/2000/svg}}{tag}" for tag in ("g", "path", "text"))
# By the first word of a chart's name: the marks that stand for a value.
KINDS = {
    "fusing": {"bar", "rule mark"}, "layout": {"bar", "rule mark"}, "layer": {"bar"},
    "energy-per-call": {"bar", "rule mark"},
    "alignment": {"point", "rule mark"}, "energy": {"point", "rule mark"}, "waste": {"point", "rule mark"},
    "history": {"point", "rule mark"}, "comparison": {"point", "rule mark"}, "roofline": {"point"},
    "crossover": {"rect mark"}, "splits": {"rect mark"},
}  # fmt: skip
FIGURE = re.compile(
    r"[\d.]+ (bytes|registers|us|ms|s|mJ|J|W|MHz|degrees Celsius|%)\b|[\d.]+ %|head / base [\d.]+|takes [\d.]+ "
)
UNIT = re.compile(
    r"\((us|ms|s|mJ|J|W|MHz|degrees Celsius|% of useful FLOP|tokens)\)|^seconds |^us |TFLOP/s$|per byte$|/ base time$"
    r"|^(us|ms|s|seconds|bytes|registers)$|^ratio of times$"
)
# What is counted or has no unit.
BARE = {"head_dim", "width (n_head x head_dim)", "computed width", "commit", "n_head", "batch"}


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> list[Chart]:
    """Of the stored Run; of a watched GPU; of two Runs in several processes; of Facts; of asv's history."""

    def slower(record: dict[str, Any]) -> None:
        in_processes(record, 1.3 if record["kernel"] == "fused_qkv" else 1.001)

    def watched(record: dict[str, Any]) -> None:
        on_h200(record)
        heat, clock = 50 + record["problem"]["seq_len"] % 7, 1980 - record["problem"]["head_dim"]
        record["counters"] |= {"gpu_temperature_celsius": heat, "gpu_sm_clock_mhz": clock, "computed_width": 32}

    folder = tmp_path_factory.mktemp("every")
    base = changed_run(folder / "base", in_processes, suites=("projection",))
    head = changed_run(folder / "head", slower, suites=("projection",))
    gpu = {"device": "cuda", "gpu": {"name": "NVIDIA H200"}}
    h200 = changed_run(folder / "h200", watched, gpu, suites=("projection", "alignment"))
    pages, _ = _pages((base, head, h200), FIXTURES / "facts_small.json", None, FIXTURES / "asv_history", "report")
    alone, _ = _pages((RUN,), None, None, None, "report")
    return [part for page in [*alone, *pages] for part in page.parts if isinstance(part, Chart)]


@pytest.fixture(scope="module")
def drawn(every: list[Chart]) -> dict[str, list[tuple[Chart, ET.Element]]]:
    """By kind at most three charts with their SVG."""
    found: dict[str, list[tuple[Chart, ET.Element]]] = {}
    for chart in every:
        of_kind = found.setdefault(kind(chart), [])
        if len(of_kind) < 3:
            of_kind.append((chart, ET.fromstring(svg(chart.picture))))
    return found


def kind(chart: Chart) -> str:
    return next(name for name in sorted(KINDS, reverse=True) if chart.name.startswith(f"{name}-"))


def layers(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield spec
    for inner in spec.get("layer", []):
        yield from layers(inner)


def abouts(chart: Chart) -> set[str]:
    """What the values behind the marks say of themselves."""
    values = [v for one in layers(chart.picture.to_dict(validate=False)) for v in one.get("data", {}).get("values", [])]
    return {value["about"] for value in values if "about" in value}


def labels(root: ET.Element, mark: str = "") -> dict[str, set[str]]:
    """The accessible texts within the groups of marks, by what they say that they are."""
    found: dict[str, set[str]] = {}
    for group in root.iter(G):
        classes = (group.get("class") or "").split()
        if "role-mark" in classes and (not mark or f"mark-{mark}" in classes):
            for element in group.iter():
                if element.get("aria-label") is not None:
                    found.setdefault(element.get("aria-roledescription", ""), set()).add(element.get("aria-label", ""))
    return found


@pytest.mark.parametrize("name", KINDS)
def test_each_mark_tells_its_own_exact_figures_and_its_cell(
    name: str, drawn: dict[str, list[tuple[Chart, ET.Element]]]
) -> None:
    assert drawn[name]
    for chart, root in drawn[name]:
        said = labels(root)
        assert said.keys() == KINDS[name], chart.name
        for texts in said.values():  # none is silent, none says something else
            assert texts == abouts(chart), chart.name
        assert labels(root, "line") == {}  # a line has many points and could say the first one's alone
        ids = {cell for row in chart.data.rows for cell in re.findall(r"\b[0-9a-f]{16}\b", " ".join(row))}
        for text in abouts(chart):
            assert FIGURE.search(text), text
            if name not in ("waste", "history"):  # these have no cells
                told = re.findall(r"cell_ids? ([0-9a-f]{16})(?: ([0-9a-f]{16}))?$|cell_id ([0-9a-f]{16});", text)
                assert told and {cell for cell in told[0] if cell} <= ids, text


def test_every_chart_says_its_unit_n_and_interval(every: list[Chart]) -> None:
    assert {kind(chart) for chart in every} == set(KINDS)
    for chart in every:
        assert re.search(r"\bn \d+|\bhold n\b|\bno n\b|\d+ processes a side", chart.about), chart.about
        assert "interval" in chart.about, chart.about
        spec = chart.picture.to_dict(validate=False)
        encoded = [(channel, of) for one in layers(spec) for channel, of in one.get("encoding", {}).items()]
        titles = {of["title"] for channel, of in encoded if channel in ("x", "y", "color") and of.get("title")}
        assert titles
        for title in titles:
            assert title in BARE or UNIT.search(title), (chart.name, title)
        scales = {(of.get("scale") or {}).get("type") for _, of in encoded}
        assert ("log" in scales) == ("logarithm" in chart.about), chart.name


@pytest.mark.parametrize("name", ["fusing", "layout", "layer", "energy-per-call"])
def test_bars_begin_at_zero(name: str, drawn: dict[str, list[tuple[Chart, ET.Element]]]) -> None:
    for chart, root in drawn[name]:
        bars = [p.get("d", "") for p in root.iter(PATH) if p.get("aria-roledescription") == "bar"]
        starts = [float(re.match(r"M(-?[\d.]+),", bar)[1]) for bar in bars]  # type: ignore[index]
        assert bars and min(starts) == 0
        assert name == "layer" or set(starts) == {0}, chart.name
        groups = [g for g in root.iter(G) if "role-axis-label" in (g.get("class") or "").split()]
        texts = [(text.get("transform", ""), text.text) for group in groups for text in group.iter(TEXT)]
        # Names stand left of the axis; the figure below its left end is 0.
        ticks = {round(float(found[1])): said for at, said in texts if (found := re.match(r"translate\(([\d.]+),", at))}
        assert ticks[0] == "0" and len(ticks) > 2, chart.name


def light(colour: str) -> float:
    """The relative luminance of WCAG 2.1, of `rgb(1, 2, 3)`, `#010203` or a name."""
    named = {"black": "#000000", "white": "#ffffff"}.get(colour, colour)
    found = re.findall(r"\d+", named) if named.startswith("rgb") else [int(named[at : at + 2], 16) for at in (1, 3, 5)]
    red, green, blue = (
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (int(c) / 255 for c in found)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("around_one", [True, False])
def test_figures_of_a_heat_map_read_on_every_colour(around_one: bool) -> None:
    """WCAG 2.1, 1.4.3: 4.5 to 1 for text of this size."""
    values = [{"x": at, "y": 1, "value": at / 20 if around_one else float(at), "text": str(at), "chosen": False,
               "about": str(at)} for at in range(1, 101)]  # fmt: skip
    root = ET.fromstring(svg(heat(values, "x", "y", "unit", around_one=around_one)))
    cells = {
        p.get("aria-label"): p.get("fill", "") for p in root.iter(PATH) if p.get("aria-label") in map(str, range(101))
    }
    groups = [g for g in root.iter(G) if {"mark-text", "role-mark"} <= set((g.get("class") or "").split())]
    inks = {text.text: text.get("fill", "") for group in groups for text in group.iter(TEXT)}
    assert cells.keys() == inks.keys() and len(set(cells.values())) > 50
    for at, cell in cells.items():
        dark, bright = sorted((light(cell), light(inks[at])))
        assert (bright + 0.05) / (dark + 0.05) > 4.5, (at, cell, inks[at])
