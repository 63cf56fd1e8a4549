"""Values and changes of a series as text."""

from andrea_bench.tracking.series import Series, Step

UNITS = ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1.0, "s"))


def value_text(value: float | None, series: Series) -> str:
    """`1.86 ms`, `3,145,728 bytes`; a dash where there is none."""
    if value is None:
        return "-"
    if series.type != "time":
        return f"{value:,.0f} {series.unit}" if value.is_integer() else f"{value:.4g} {series.unit}"
    scale, unit = next((one for one in reversed(UNITS) if value >= one[0]), UNITS[0])
    return f"{value / scale:.3g} {unit}"


def change_text(step: Step) -> str:
    """`+30 %`; in words where the old level is 0."""
    return "from 0" if step.change is None else f"{100 * step.change:+.3g} %"
