"""Page: structure of the compiled kernels (Facts): waste, registers, spills, occupancy, binding unit."""

from collections.abc import Iterator
from typing import Any

from andrea_bench.report import charts
from andrea_bench.report.content import Chart, Page, Part, Subject, Table
from andrea_bench.report.pages.marks import anchor

MOST_CHARTS = 6
HEADS = ("gpu", "kernel", "head_dim", "waste", "registers a thread", "spilled bytes a thread", "occupancy", "bound by")


def structure(subject: Subject) -> Page:
    """Waste against head_dim for each GPU, and the tables that `inspect` prints."""
    title = "Structure of the compiled kernels"
    facts = subject.facts
    if facts is None:
        return Page(
            "structure", title, absent="no Facts were given (`inspect --save FILE`, then `report --facts FILE`)"
        )
    versions = ", ".join(f"{name} {version}" for name, version in facts.compilers.items() if version)
    parts: list[Part] = [f"Compiled by {versions}; not measured: structure shows waste, not its price."]
    drawn = list(_charts(facts.facts))
    parts += drawn[:MOST_CHARTS]
    if len(drawn) > MOST_CHARTS:
        parts.append(f"The first {MOST_CHARTS} of {len(drawn)} kinds of waste are drawn; the tables hold all.")
    if facts.tables:
        parts.append(facts.caption)
    parts += facts.tables
    if facts.refusals:
        refused = [(line,) for line in facts.refusals]
        parts.append(Table("What could not be compiled, and why", ("what",), refused, folded=True))
    return Page("structure", title, parts)


def _charts(facts: list[dict[str, Any]]) -> Iterator[Chart]:
    """One for each setting and all GPUs that waste the same: most of one architecture do."""
    settings: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in facts:
        if one["status"] == "ok" and one.get("mma_efficiency") and (p := one.get("problem")):
            where = f"batch {p['batch']}, seq_len {p['seq_len']}, {p['dtype']}, {one['direction']}"
            settings.setdefault((one["gpu"], where), []).append(one)
    alike: dict[tuple[str, tuple[object, ...]], list[str]] = {}
    for (gpu, where), members in settings.items():
        if len({one["problem"]["head_dim"] for one in members}) > 1:
            wasted = sorted((one["kernel"], one["problem"]["head_dim"], one["mma_efficiency"]) for one in members)
            alike.setdefault((where, tuple(wasted)), []).append(gpu)
    for (where, _), gpus in alike.items():
        yield _chart(gpus, where, [settings[gpu, where] for gpu in gpus])


def _chart(gpus: list[str], where: str, of_gpus: list[list[dict[str, Any]]]) -> Chart:
    drawn = [_line(one) for one in sorted(of_gpus[0], key=lambda one: (one["kernel"], one["problem"]["head_dim"]))]
    values = [
        {
            "series": line[1], "x": int(line[2]), "value": waste, "low": waste, "high": waste,
            "about": "; ".join(f"{name} {value}" for name, value in zip(HEADS, line, strict=True)),
        }
        for line, waste in drawn
    ]  # fmt: skip
    table = [_line(one)[0] for members in of_gpus for one in members]
    names = ", ".join(gpus)
    title = f"Matrix FLOP issued beyond the useful, {names if len(gpus) < 4 else f'{len(gpus)} GPUs alike'}: {where}"
    return Chart(
        anchor("waste", gpus[0], where),
        title,
        "Percent of the useful FLOP that the compiled code issues beyond them, against head_dim, from zero; compiled, "
        "so there is no n and no interval. Lower is better." + (f" The same on {names}." if len(gpus) > 1 else ""),
        charts.lines(values, "head_dim", "waste (% of useful FLOP)", zero=True),
        Table(f"{title}: figures", HEADS, table, frozenset(HEADS[2:7]), folded=True),
    )


def _line(one: dict[str, Any]) -> tuple[tuple[str, ...], float]:
    """The figures of one compiled kernel, and its waste in percent."""
    waste = 100 * (1 / one["mma_efficiency"] - 1)
    spilled = (one.get("spill_store_bytes") or 0) + (one.get("spill_load_bytes") or 0)
    figures = (one["gpu"], one["kernel"], str(one["problem"]["head_dim"]), f"{waste:.1f} %",
               str(one.get("registers_per_thread")), str(spilled), f"{100 * (one.get('occupancy') or 0):.0f} %",
               str(one.get("bound_by")))  # fmt: skip
    return figures, waste
