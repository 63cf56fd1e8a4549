"""Charts by Altair, drawn by vl-convert: bars and lines with intervals, heat maps, stacked bars.

Field names are ours, names of the user's only values. Text takes the colour of the page around it
(currentColor), so that one SVG suits light and dark. Each mark carries its `about` as accessible text,
from which the page's tooltips are made.
"""

from collections.abc import Sequence
from typing import Any

import altair as alt
import msgspec

# Okabe and Ito's colours for colour-blind readers (jfly.uni-koeln.de/color), without the ones that a white or a
# black page swallows.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C")
# From blue over grey to orange; apart for every kind of colour blindness, and grey means no difference.
BELOW, NEUTRAL, ABOVE = "#2F7FBF", "#BFBFBF", "#E08214"
WIDTH = 520
ROW_HEIGHT = 26
Values = Sequence[dict[str, Any]]


def bars(values: Values, unit: str) -> alt.TopLevelMixin:
    """Horizontal bars from zero with intervals. Each value: name, value, low, high, about."""
    base = alt.Chart(alt.Data(values=list(values)))
    names = alt.Y("name:N", sort=None, title=None)
    bar = base.mark_bar(color=COLOURS[0], opacity=0.85).encode(
        x=alt.X("value:Q", title=unit, scale=alt.Scale(zero=True)), y=names, description="about:N"
    )
    span = base.mark_rule(color="currentColor", strokeWidth=2).encode(
        x="low:Q", x2="high:Q", y=names, description="about:N"
    )
    return _styled((bar + span).properties(width=WIDTH, height=alt.Step(ROW_HEIGHT)))


def stacked(values: Values, unit: str) -> alt.TopLevelMixin:
    """Horizontal bars of parts that add up. Each value: name, part, order, value, about."""
    parts = list(dict.fromkeys(v["part"] for v in values))
    chart = alt.Chart(alt.Data(values=list(values))).mark_bar(stroke="white", strokeWidth=0.5)
    chart = chart.encode(
        x=alt.X("value:Q", title=unit, stack="zero"),
        y=alt.Y("name:N", sort=None, title=None),
        color=alt.Color("part:N", scale=_series(parts), sort=parts, title=None, legend=_legend()),
        order="order:Q",
        description="about:N",
    )
    return _styled(chart.properties(width=WIDTH, height=alt.Step(ROW_HEIGHT + 8)))


def lines(values: Values, x: str, y: str, *, zero: bool) -> alt.TopLevelMixin:
    """A line for each series with intervals. Each value: series, x, value, low, high, about."""
    names = list(dict.fromkeys(v["series"] for v in values))
    base = alt.Chart(alt.Data(values=list(values)))
    whole = alt.Axis(tickMinStep=1, format="d")
    across = alt.X("x:Q", title=x, axis=whole, scale=alt.Scale(zero=False, nice=False, padding=12))
    colour = alt.Color("series:N", scale=_series(names), sort=names, title=None, legend=_legend())
    up = alt.Y("value:Q", title=y, scale=alt.Scale(zero=zero))
    line = base.mark_line(strokeWidth=1.5).encode(x=across, y=up, color=colour)
    span = base.mark_rule(strokeWidth=1.5).encode(x=across, y="low:Q", y2="high:Q", color=colour)
    shape = alt.Shape("series:N", scale=alt.Scale(domain=names), sort=names, title=None, legend=_legend())
    point = base.mark_point(filled=True, size=55, opacity=1).encode(
        x=across, y=up, color=colour, shape=shape, description="about:N"
    )
    return _styled((line + span + point).properties(width=WIDTH, height=280))


def roofline(points: Values, roofs: Values, x: str, y: str) -> alt.TopLevelMixin:
    """Points under lines, both axes logarithmic. Each point: series, x, value, about; of roofs: ceiling, x, value."""
    names = list(dict.fromkeys(v["series"] for v in points))
    log = alt.Scale(type="log", nice=False, padding=16)
    across, up = alt.X("x:Q", title=x, scale=log), alt.Y("value:Q", title=y, scale=log)
    drawn = alt.Chart(alt.Data(values=list(points))).mark_point(filled=True, size=55, opacity=0.9)
    layers: list[Any] = [drawn.encode(
        x=across, y=up, description="about:N",
        color=alt.Color("series:N", scale=_series(names), sort=names, title=None, legend=_legend()),
        shape=alt.Shape("series:N", scale=alt.Scale(domain=names), sort=names, title=None, legend=_legend()),
    )]  # fmt: skip
    if roofs:
        line = alt.Chart(alt.Data(values=list(roofs))).mark_line(color="currentColor", interpolate="linear")
        dashes = alt.StrokeDash("ceiling:N", title="ceilings", legend=_legend())
        layers.append(line.encode(x=across, y=up, strokeDash=dashes))
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
    middle = max(figures) / 2
    ink = "true" if around_one else f"datum.value > {middle!r}"
    text = base.mark_text(aria=False).encode(
        **place, text="text:N", color=alt.condition(ink, alt.value("black"), alt.value("white"))
    )
    width = min(WIDTH, max(160, 90 * len(columns)))
    return _styled((cell + text).properties(width=width, height=alt.Step(44)))


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
    return msgspec.json.encode(spec).decode()


def _series(names: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(names), range=[COLOURS[i % len(COLOURS)] for i in range(len(names))])


def _legend() -> alt.Legend:
    return alt.Legend(orient="bottom", columns=3, labelLimit=240)


def _styled(chart: Any) -> alt.TopLevelMixin:
    ink = {"labelColor": "currentColor", "titleColor": "currentColor"}
    lines = {"gridColor": "currentColor", "domainColor": "currentColor", "tickColor": "currentColor"}
    return (
        chart.configure_axis(**ink, **lines, gridOpacity=0.15, labelFontSize=12, titleFontSize=12, labelLimit=220)
        .configure_legend(**ink, labelFontSize=12, titleFontSize=12)
        .configure_view(stroke=None)
        .configure_text(fontSize=12)
    )
