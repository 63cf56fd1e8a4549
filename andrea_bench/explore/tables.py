"""A ranking on the terminal: one table a Setting, and all of them side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from andrea_bench.explore.choice import Choice, objective_value
from andrea_bench.explore.setting import Setting
from andrea_bench.report.words import ABSENT, duration, significant
from andrea_bench.verdicts.wording import collapsed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

MOST_LEFT_OUT = 6
MOST_ROWS = 20
# What needs more than so many times the best is counted, not shown.
FAR_OFF = 2.0


def print_settings(console: "Console", settings: Sequence[Setting]) -> None:
    """Side by side where there are several, then each with its sentences."""
    from rich.text import Text

    if len(settings) > 1:
        console.print(_side_by_side(settings))
    for setting in settings:
        console.print()
        console.print(_title(setting))
        console.print(_times(setting))
        hidden = sum(one.reason is None for one in setting.choices) - len(_shown(setting))
        if hidden:
            console.print(Text(f"... and {hidden} more below (--json has all)", style="dim"))
        if doubts := collapsed(doubt for one in _shown(setting) for doubt in one.doubts):
            console.print(Text(f"! measured, and in doubt: {'; '.join(doubts)}"))
        _print_sizes(console, setting)
        if any(one.compiled for one in setting.choices):
            console.print(_compiled(setting))
        for sentence in setting.sentences:
            console.print(Text(f"- {sentence.text}{' !' * bool(sentence.doubts)}"))
        _print_left_out(console, setting)
        for reason in setting.assumed:
            console.print(Text(f"note: {reason}", style="dim"))


def _title(setting: Setting) -> "Text":
    from rich.text import Text

    ranked = "ranked by" if setting.rankable else "not ranked, sorted by"
    families = dict.fromkeys(_family(one) for one in setting.choices if one.reason is None)
    known = ", ".join(name for name in families if name and name != setting.kernel)
    kernel = f"{setting.kernel} ({known})" if known else setting.kernel
    sizes = setting.choices[0].problem
    what = f"batch {sizes.batch}, seq_len {sizes.seq_len}, {sizes.dtype}, {sizes.direction}"
    return Text.assemble((setting.title, "bold"), f"  {ranked} {setting.objective}; {what}; attention by {kernel}")


def _family(one: Choice) -> str | None:
    """Whose efficiency the predicted attention has."""
    prediction = one.attention.prediction if one.attention else None
    return ", ".join(dict.fromkeys(family for _, family, _ in prediction.keys)) if prediction else None


def _rank(one: Choice) -> str:
    """The rank; * of the Pareto set, ! where a measured time is in doubt."""
    return f"{one.rank if one.rank is not None else ABSENT}{'*' * one.pareto}{'!' * bool(one.doubts)}"


def _times(setting: Setting) -> "Table":
    from rich.table import Table
    from rich.text import Text

    usable = [one for one in setting.choices if one.reason is None]
    hows = {one.layer.how for one in usable if one.layer}
    caption = f"us of one layer, {' and '.join(sorted(hows))}"
    caption += " (m: measured)" if len(hows) > 1 else ""
    caption += (
        "; from to: its interval. width, waste (share of the issued matrix FLOPs that is of no use, masked halves of "
        "causal tiles among them), waves (blocks over SMs), tail (how busy SMs are over them) and what binds: of "
        "attention, predicted. * in the Pareto set of time, KV cache and parameters"
    )
    table = Table(box=None, padding=(0, 1, 0, 0), caption=Text(caption, style="dim"), caption_justify="left")
    for head in ("rank", "split", "layer", "from to %", "attention", "TFLOP/s", "% of bound", "width waste",
                 "waves tail", "binds"):  # fmt: skip
        figures = head not in ("rank", "split", "% of bound")
        table.add_column(
            head, justify="left" if head in ("split", "binds") else "right", overflow="fold",
            min_width=max(map(len, head.split())) if figures else None,
        )  # fmt: skip
    for one in _shown(setting):
        mark = " m" if len(hows) > 1 and one.layer and one.layer.how == "measured" else ""
        style = "bold" if one.split == setting.own else ""
        cells = (_rank(one), one.split + mark, *_figures(one))
        table.add_row(*(_kept(cell, style) for cell in cells))
    return table


def _shown(setting: Setting) -> list[Choice]:
    """The rows of a table: the best, and the user's own split wherever it stands."""
    usable = [one for one in setting.choices if one.reason is None]
    value = objective_value(setting.objective)
    values = {one.split: value(one) or 0.0 for one in usable}
    near = [one for one in usable if values[one.split] <= FAR_OFF * min(values.values())][:MOST_ROWS]
    return [one for one in usable if one in near or one.split == setting.own]


def _kept(cell: str, style: str) -> "Text":
    """A cell whose parts stay on one line."""
    from rich.text import Text

    return Text(cell.replace(" ", "\N{NO-BREAK SPACE}"), style=style)


def _us(time_us: float | None) -> str:
    return ABSENT if time_us is None else significant(time_us)


def _figures(one: Choice) -> list[str]:
    layer, attention = one.layer, one.attention
    if layer is None:
        return [ABSENT] * 8
    prediction = attention.prediction if attention else None
    width = waves = binds = ABSENT
    if prediction is not None:
        if prediction.computed_width is not None:
            width = f"{prediction.computed_width}"
        if prediction.waste is not None:
            width += f" {prediction.waste:.0%}"
        if prediction.waves is not None:
            waves = significant(prediction.waves, 2 if prediction.waves < 100 else 3)
        if prediction.tail_efficiency is not None:
            waves += f" {prediction.tail_efficiency:.0%}"
        binds = prediction.bound_by
    return [
        _us(layer.time_us),
        f"{100 * (layer.low_us / layer.time_us - 1):.0f} {100 * (layer.high_us / layer.time_us - 1):+.0f}",
        _us(attention.time_us if attention else None),
        significant(layer.tflops) if layer.tflops else ABSENT,
        f"{layer.percent_of_bound:.0f}" if layer.percent_of_bound else ABSENT,
        width,
        waves,
        binds,
    ]


def _sizes(one: Choice) -> list[str]:
    return [
        f"{one.kv_cache_bytes_per_token:,} B",
        f"{one.parameters / 1e6:.4g} M",
        f"{significant(one.memory_bytes / 2**20)} MiB",
    ]


def _print_sizes(console: "Console", setting: Setting) -> None:
    """One line where all splits have the same sizes, as those of one width do; else a table."""
    from rich.table import Table
    from rich.text import Text

    usable = [one for one in setting.choices if one.reason is None]
    heads = ("KV cache a token", "parameters", "weights, KV cache")
    training = "backward" in setting.choices[0].problem.direction  # keeps no cache; gradients are not counted
    projections = {one.projections_us for one in usable}
    if len(projections) == 1 and None not in projections:
        console.print(Text(f"of every split: both projections {duration(projections.pop())}"))
    if len({tuple(_sizes(one)) for one in usable}) == 1 and setting.objective != "energy":
        sizes = dict(zip(heads, _sizes(usable[0]), strict=True))
        fixed = ", ".join(f"{head} {size}" for head, size in sizes.items() if not training or head == "parameters")
        console.print(Text(f"of every split, over {usable[0].problem.n_layer} layers: {fixed}"))
        best, last = usable[0].tokens_per_s, usable[-1].tokens_per_s
        if best and last:
            console.print(Text(f"tokens per second through these attention layers: {best:,.0f} to {last:,.0f}"))
        return
    table = Table(box=None, padding=(0, 1, 0, 0))
    known = sorted({one.energy_how for one in usable if one.energy_how})
    for head in ("rank", "split", "both projec- tions", *heads, "tokens/s", f"J a layer, {' and '.join(known)}"):
        table.add_column(head, justify="left" if head == "split" else "right", overflow="fold")
    for one in _shown(setting):
        rate = f"{one.tokens_per_s:,.0f}" if one.tokens_per_s else ABSENT
        energy = significant(one.energy_joules) if one.energy_joules else ABSENT
        table.add_row(
            *(Text(cell) for cell in (_rank(one), one.split, duration(one.projections_us), *_sizes(one), rate, energy))
        )
    console.print(table)


def _compiled(setting: Setting) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0))
    for head in ("split", "compiled kernel", "registers", "spills", "width", "useful MMA", "loads", "binds"):
        table.add_column(head, justify="left" if head in ("split", "compiled kernel") else "right", overflow="fold")
    for one in setting.choices:
        for facts in one.compiled:
            table.add_row(*(Text(str(cell)) for cell in (one.split, facts["kernel"], *_facts(facts))))
    return table


def _facts(facts: dict[str, Any]) -> list[Any]:
    if facts["status"] != "ok":
        return [facts["reason"] or facts["status"], *[ABSENT] * 5]
    widths = {facts["computed_width_qk"], facts["computed_width_pv"]} - {None}
    loads = [*(facts["global_load_bytes"] or ()), *(facts["async_copy_bytes"] or ())]
    useful = facts["mma_efficiency"]
    return [
        facts["registers_per_thread"],
        facts["spill_store_bytes"],
        "/".join(str(w) for w in sorted(widths, key=str)) or ABSENT,
        f"{useful:.0%}" if useful is not None else ABSENT,
        ", ".join(f"{width} B" for width in sorted(set(loads), key=int)) or ABSENT,
        facts["bound_by"] or ABSENT,
    ]


def _side_by_side(settings: Sequence[Setting]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("split", overflow="fold")
    for setting in settings:
        table.add_column(Text(f"{setting.title}: layer (rank)"), justify="right", overflow="fold")
    splits = dict.fromkeys(one.split for setting in settings for one in setting.choices if one.reason is None)
    for split in splits:
        cells = []
        for setting in settings:
            one = next((c for c in setting.choices if c.split == split and c.reason is None), None)
            cells.append(f"{duration(one.layer.time_us)} ({_rank(one)})" if one and one.layer else ABSENT)
        table.add_row(Text(split), *(Text(cell) for cell in cells))
    return table


def _print_left_out(console: "Console", setting: Setting) -> None:
    from rich.text import Text

    left = [*setting.left_out, *((one.split, one.reason) for one in setting.choices if one.reason)]
    for split, reason in left[:MOST_LEFT_OUT]:
        console.print(Text(f"left out: {split}: {reason}", style="dim"))
    if len(left) > MOST_LEFT_OUT:
        console.print(Text(f"... and {len(left) - MOST_LEFT_OUT} more left out (--json has all)", style="dim"))
