"""Charts by Altair, drawn by vl-convert: bars, lines and ratios with intervals, heat maps, stacked bars.

Field names are ours, names of the user's only values. Text takes the colour of the page around it
(currentColor), so that one SVG suits light and dark. Each mark of a value carries its `about` as accessible text,
from which the page's tooltips are made; what only joins or repeats such marks (lines, figures) is hidden from both.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import altair as alt
import msgspec

# Okabe and Ito's colours for colour-blind readers (jfly.uni-koeln.de/color), without the ones that a white or a
# black page swallows.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C")
# From blue over grey to orange; apart for every kind of colour blindness, and grey means no difference.
BELOW, NEUTRAL, ABOVE = "#2F7FBF", "#BFBFBF", "#E08214"
BEHIND = "#8C8C8C"  # of what stands behind the marks: reads on white and on black
# Small enough, with letters large enough, to be read when a phone shows the whole at half the size.
WIDTH = 420
ROW_HEIGHT = 28
LETTERS = 14
NOTE_LETTER, NOTE_HEIGHT, NOTE_ROOM = 8.3, 15, 4  # pixels: of "112: +30 %" in LETTERS of a wide font; between notes
PADDING, HEIGHT = 16, 280  # pixels: between the outermost points and the ends of their axis; of a chart of lines
# Extensible Markup Language 1.0, section 2.2, and one character that shows for each.
NOT_IN_XML = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"}
NOT_IN_XML |= dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD)
Values = Sequence[dict[str, Any]]


def bars(values: Values, unit: str) -> alt.TopLevelMixin:
    """Horizontal bars from zero with intervals and their figures. Each value: name, value, low, high, text, about."""
    base = alt.Chart(alt.Data(values=list(values)))
    names = alt.Y("name:N", sort=None, title=None)
    across = alt.X("value:Q", title=unit, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6))
    bar = base.mark_bar(color=COLOURS[0]).encode(x=across, y=names, description="about:N")
    span = base.mark_rule(color="currentColor", strokeWidth=2).encode(
        x="low:Q", x2="high:Q", y=names, description="about:N"
    )
    figure = base.mark_text(color="currentColor", align="left", dx=6, aria=False)
    layers = bar + span + figure.encode(x="high:Q", y=names, text="text:N")
    return _styled(layers.properties(width=WIDTH, height=alt.Step(ROW_HEIGHT)))


def stacked(values: Values, unit: str) -> alt.TopLevelMixin:
    """Horizontal bars of parts that add up, with their sums. Each value: name, part, order, value, about."""
    parts = list(dict.fromkeys(v["part"] for v in values))
    base = alt.Chart(alt.Data(values=list(values)))
    names = alt.Y("name:N", sort=None, title=None)
    total = base.mark_text(color="currentColor", align="left", dx=6, aria=False)
    total = total.encode(x="sum(value):Q", y=names, text=alt.Text("sum(value):Q", format=".3~r"))
    chart = base.mark_bar(stroke="white", strokeWidth=0.5).encode(
        x=alt.X("value:Q", title=unit, stack="zero"),
        y=names,
        color=alt.Color("part:N", scale=_series(parts), sort=parts, title=None, legend=_legend(parts)),
        order="order:Q",
        description="about:N",
    )
    return _styled((chart + total).properties(width=WIDTH, height=alt.Step(ROW_HEIGHT + 8)))


def lines(
    values: Values, x: str, y: str, *, zero: bool, whole: bool = True, steps: Values = (), behind: str = ""
) -> alt.TopLevelMixin:
    """A line for each series with intervals. Each value: series, x, value, low, high, about, and where the point has
    a name to be written beside it, note.

    whole: x counts something. steps: drawn behind the lines in grey on an axis of its own called `behind`, each
    level reaching half way to the next; each value: series, x, value."""
    names = list(dict.fromkeys(v["series"] for v in values))
    base = alt.Chart(alt.Data(values=list(values)))
    axis = alt.Axis(tickMinStep=1, format="d", tickCount=8) if whole else alt.Axis(tickCount=8)
    across = alt.X("x:Q", title=x, axis=axis, scale=alt.Scale(zero=False, nice=False, padding=PADDING))
    colour = alt.Color("series:N", scale=_series(names), sort=names, title=None, legend=_legend(names))
    scale = alt.Scale(zero=True) if zero else alt.Scale(zero=False, nice=False, padding=PADDING)
    up = alt.Y("value:Q", title=y, scale=scale)
    line = base.mark_line(strokeWidth=1.5, aria=False).encode(x=across, y=up, color=colour)
    span = base.mark_rule(strokeWidth=1.5).encode(x=across, y="low:Q", y2="high:Q", color=colour, description="about:N")
    shape = alt.Shape("series:N", scale=alt.Scale(domain=names), sort=names, title=None, legend=_legend(names))
    point = base.mark_point(filled=True, size=55, opacity=1).encode(
        x=across, y=up, color=colour, shape=shape, description="about:N"
    )
    layers = line + span + point
    for value, placed in _placed_notes(values):
        named = alt.Chart(alt.Data(values=[value])).mark_text(color="currentColor", aria=False, **placed)
        layers += named.encode(x=across, y=up, text="note:N")
    if not steps:
        return _styled(layers.properties(width=WIDTH, height=HEIGHT))
    level = alt.Chart(alt.Data(values=list(steps))).mark_line(
        color=BEHIND, opacity=0.6, strokeWidth=2.5, interpolate="step", aria=False
    )
    right = alt.Axis(grid=False, orient="right", tickMinStep=1, format="d")
    drawn = level.encode(
        x=across,
        y=alt.Y("value:Q", title=behind, axis=right, scale=alt.Scale(zero=False, padding=12)),
        strokeDash=alt.StrokeDash("series:N", title=behind, legend=_legend()),
    )
    return _styled(alt.layer(drawn, layers).resolve_scale(y="independent").properties(width=WIDTH, height=HEIGHT))


def _placed_notes(values: Values) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The values with a note, from left to right, each with where it is written (align, dx, dy): centred above its
    point, at either end of the chart within it, not over the figures of an axis; one that would touch another stands
    as many rows higher as it takes."""
    across = _pixels([v["x"] for v in values], WIDTH)
    up = _pixels([end for v in values for end in (v["low"], v["value"], v["high"])], HEIGHT)
    taken: list[tuple[float, float]] = []  # of each note the pixels where it ends and stands
    for value in sorted((v for v in values if v.get("note")), key=lambda v: v["x"]):
        at, width = across(value["x"]), NOTE_LETTER * len(value["note"])
        align, begins = "center", at - width / 2
        if begins < NOTE_ROOM:
            align, begins = "left", float(NOTE_ROOM)
        elif begins + width > WIDTH - NOTE_ROOM:
            align, begins = "right", WIDTH - NOTE_ROOM - width
        beside = [height for ends, height in taken if begins - ends < NOTE_ROOM]
        height, row = up(value["value"]), 0
        while any(abs(height + NOTE_HEIGHT * row - other) < NOTE_HEIGHT for other in beside):
            row += 1
        taken.append((begins + width, height + NOTE_HEIGHT * row))
        anchor = {"left": begins, "center": at, "right": begins + width}[align]
        yield value, {"align": align, "dx": round(anchor - at, 1), "dy": -12 - NOTE_HEIGHT * row}


def _pixels(figures: Sequence[float], length: int) -> Callable[[float], float]:
    """Where a figure lies on an axis of so many pixels that reaches PADDING beyond the least and the greatest."""
    least, most = min(figures, default=0.0), max(figures, default=0.0)
    return lambda figure: PADDING + (figure - least) / ((most - least) or 1.0) * (length - 2 * PADDING)


def ratios(values: Values, unit: str, colours: dict[str, str]) -> alt.TopLevelMixin:
    """Ratios with intervals on a logarithmic axis, 1 marked. Each value: name, value, low, high, kind, about.
    colours: of the kinds."""
    kinds = list(dict.fromkeys(v["kind"] for v in values))
    base = alt.Chart(alt.Data(values=list(values)))
    names = alt.Y("name:N", sort=None, title=None, axis=alt.Axis(grid=True))
    scale = alt.Scale(domain=kinds, range=[colours.get(kind, BEHIND) for kind in kinds])
    colour = alt.Color("kind:N", scale=scale, sort=kinds, title=None, legend=alt.Legend(orient="bottom", columns=4))
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds), sort=kinds, title=None)
    # The ends are set here: of a logarithmic axis vega leaves a span below a power of ten without a figure.
    reach = 1.03 * max(1.1, *(max(v["high"], 1 / v["low"]) for v in values))
    across = alt.X("value:Q", title=unit, scale=alt.Scale(type="log", domain=[1 / reach, reach], nice=False))
    one = alt.Chart(alt.Data(values=[{"at": 1}])).mark_rule(color=BEHIND, strokeDash=[4, 3], aria=False)
    span = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q", y=names, color=colour, description="about:N")
    point = base.mark_point(filled=True, size=65, opacity=1).encode(
        x=across, y=names, color=colour, shape=shape, description="about:N"
    )
    return _styled((one.encode(x="at:Q") + span + point).properties(width=WIDTH, height=alt.Step(ROW_HEIGHT - 4)))


def roofline(points: Values, roofs: Values, x: str, y: str) -> alt.TopLevelMixin:
    """Points under lines, both axes logarithmic. Each point: series, x, value, about; of roofs: ceiling, x, value."""
    names = list(dict.fromkeys(v["series"] for v in points))
    log = alt.Scale(type="log", nice=False, padding=16)
    figures = alt.Axis(format=".3~r", labelOverlap="greedy", labelSeparation=6)
    across, up = alt.X("x:Q", title=x, scale=log, axis=figures), alt.Y("value:Q", title=y, scale=log, axis=figures)
    drawn = alt.Chart(alt.Data(values=list(points))).mark_point(filled=True, size=55, opacity=0.9)
    marks = drawn.encode(
        x=across, y=up, description="about:N",
        color=alt.Color("series:N", scale=_series(names), sort=names, title=None, legend=_legend(names)),
        shape=alt.Shape("series:N", scale=alt.Scale(domain=names), sort=names, title=None, legend=_legend(names)),
    )  # fmt: skip
    layers: list[Any] = [marks]
    if roofs:
        line = alt.Chart(alt.Data(values=list(roofs))).mark_line(color="currentColor", interpolate="linear", aria=False)
        dashes = alt.StrokeDash("ceiling:N", title="ceilings", legend=_legend())
        layers = [line.encode(x=across, y=up, strokeDash=dashes), marks]  # a line over a point would hide its text
    return _styled(alt.layer(*layers).properties(width=WIDTH, height=300))


def heat(values: Values, x: str, y: str, unit: str, *, around_one: bool) -> alt.TopLevelMixin:
    """A heat map with its figures written in. Each value: x, y, value, text, chosen, about.

    around_one: colours diverge from 1 (grey), in equal steps for a ratio and its inverse; else they run from
    dark (zero) to light (most). chosen: the cell gets a frame."""
    base = alt.Chart(alt.Data(values=list(values)))
    columns, rows = (sorted({v[key] for v in values}) for key in ("x", "y"))
    place = {
        "x": alt.X("x:O", title=x, sort=columns, axis=alt.Axis(labelAngle=0)),
        "y": alt.Y("y:O", title=y, sort=rows[::-1]),
    }
    figures = [v["value"] for v in values]
    most = max(*(max(f, 1 / f) for f in figures), 1.05) if around_one else 1.0
    if around_one:
        scale = alt.Scale(type="log", domain=[1 / most, 1, most], range=[BELOW, NEUTRAL, ABOVE])
    else:
        scale = alt.Scale(scheme="cividis", domain=[0, max(figures)])
    cell = base.mark_rect(strokeWidth=3).encode(
        **place,
        color=alt.Color("value:Q", scale=scale, title=unit, legend=_legend()),
        stroke=alt.condition("datum.chosen", alt.value("currentColor"), alt.value("transparent")),
        description="about:N",
    )
    middle = 0.47 * max(figures)  # where white and black read equally well on cividis, 4.6 to 1
    ink = "true" if around_one else f"datum.value > {middle!r}"
    two_lines = any("\n" in v["text"] for v in values)
    text = base.mark_text(aria=False, lineBreak="\n", baseline="middle", dy=-8 if two_lines else 0).encode(
        **place, text="text:N", color=alt.condition(ink, alt.value("black"), alt.value("white"))
    )
    return _styled((cell + text).properties(width=max(160, 84 * len(columns)), height=alt.Step(48)))


def svg(picture: alt.TopLevelMixin, background: str = "transparent") -> str:
    """The chart as SVG text without network access: all data are inline."""
    import vl_convert

    return vl_convert.vegalite_to_svg(_json(picture, background))


def png(picture: alt.TopLevelMixin) -> bytes:
    """The chart on white, at twice its size, for papers."""
    import vl_convert

    return vl_convert.vegalite_to_png(_json(picture, "white"), scale=2)


def _json(picture: alt.TopLevelMixin, background: str) -> str:
    spec = picture.to_dict(validate=False)
    spec["background"] = background
    return msgspec.json.encode(_drawable(spec)).decode()


def _drawable(part: Any) -> Any:
    """A part of a chart with a picture in place of each character that XML can't hold: vl-convert ends the process
    at one."""
    if isinstance(part, dict):
        return {key: _drawable(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_drawable(value) for value in part]
    return part.translate(NOT_IN_XML) if isinstance(part, str) else part


def _series(names: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(names), range=[COLOURS[i % len(COLOURS)] for i in range(len(names))])


def _legend(names: Sequence[str] = ()) -> alt.Legend | None:
    """Below the chart, in as many columns as names of that length leave room for; none for one name, which the
    axis says too."""
    if len(names) == 1:
        return None
    return alt.Legend(orient="bottom", columns=2 if max(map(len, names), default=0) > 14 else 4, labelLimit=280)


def _styled(chart: Any) -> alt.TopLevelMixin:
    ink = {"labelColor": "currentColor", "titleColor": "currentColor"}
    lines = {"gridColor": "currentColor", "domainColor": "currentColor", "tickColor": "currentColor"}
    return (
        chart.configure_axis(
            **ink, **lines, gridOpacity=0.15, labelFontSize=LETTERS, titleFontSize=LETTERS, labelLimit=260
        )
        .configure_legend(**ink, labelFontSize=LETTERS, titleFontSize=LETTERS)
        .configure_view(stroke=None)
        .configure_text(fontSize=LETTERS)
    )
