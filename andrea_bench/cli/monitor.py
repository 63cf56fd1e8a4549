"""`monitor`: the machine's counters, live."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from andrea_bench.cli.console import console
from andrea_bench.cli.options import device_option, json_option
from andrea_bench.errors import BadInput, EnvironmentUnfit
from andrea_bench.hardware.readings import Readings

if TYPE_CHECKING:
    from rich.table import Table


@click.command("monitor")
@device_option
@click.option("--interval", "interval_s", default=1.0, show_default=True, help="Seconds between two looks.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many looks; default: at Ctrl-C.")
@json_option
def monitor(device: str | None, interval_s: float, count: int | None, as_json: bool) -> None:
    """Live counters of the CPU and of every GPU. --device cpu leaves the GPUs out; --device cuda demands them.

    With --json: one JSON document a line.
    """
    if device not in (None, "cpu", "cuda"):
        raise BadInput(f"--device {device}: monitor shows every GPU, by name and UUID; use cpu or cuda")
    if not 0.1 <= interval_s <= 3600:
        raise BadInput(f"--interval {interval_s}: must be between 0.1 and 3600 seconds")
    looks = _looks(device, interval_s, count)
    if as_json:
        _write_lines(looks)
    elif console().is_terminal:
        _live(looks)
    else:
        for look in looks:
            console().print(look["time"], style="bold")
            console().print(_table(look))


def _looks(device: str | None, interval_s: float, count: int | None) -> Iterator[Readings]:
    """Looks at a steady pace: what one takes does not add up."""
    from andrea_bench.measure.live import Live

    live = Live(gpus=device != "cpu")
    if device == "cuda" and not live.has_gpus:
        raise EnvironmentUnfit(f"no GPU counters: {live.gpus_reason}")
    next_s = time.monotonic()
    done = 0
    while count is None or done < count:
        next_s += interval_s
        time.sleep(max(0.0, next_s - time.monotonic()))
        yield live.read()
        done += 1


def _write_lines(looks: Iterator[Readings]) -> None:
    import msgspec

    for look in looks:
        click.echo(msgspec.json.encode(look).decode())


def _live(looks: Iterator[Readings]) -> None:
    from rich.live import Live as View

    with View(console=console(), auto_refresh=False, transient=False) as view:
        for look in looks:
            view.update(_table(look), refresh=True)


def _table(look: Readings) -> "Table":
    """One look in 80 columns: a line for the CPU and one for each GPU, and what is absent below."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("device", overflow="fold", ratio=1)
    for title in ("MHz", "C", "W", "busy %", "GiB"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("slowed by", overflow="fold", ratio=1)
    cpu = look["cpu"]
    others = "n/a" if cpu["cpu_foreign_cpus"] is None else f"{cpu['cpu_foreign_cpus'] / cpu['cpu_cpus']:.0%}"
    steal = "n/a" if cpu["cpu_steal_share"] is None else f"steal {cpu['cpu_steal_share']:.1%}"
    row = (_number(cpu["cpu_clock_mhz"]), _number(cpu["cpu_temperature_celsius"]), "n/a", others.rstrip("%"), "n/a")
    table.add_row(f"CPU, {cpu['cpu_cpus']} usable", *row, steal)
    for gpu in look["gpus"]:
        memory = gpu["memory_used_bytes"]
        table.add_row(
            Text(gpu["name"] or gpu["uuid"] or "GPU"),
            _number(gpu["sm_clock_mhz"]),
            _number(gpu["temperature_celsius"]),
            _number(gpu["power_watts"]),
            _number(gpu["gpu_utilisation_percent"]),
            "n/a" if memory is None else f"{memory / 2**30:.1f}",
            Text("n/a" if gpu["event_reasons"] is None else ", ".join(gpu["event_reasons"])),
        )
    if look.get("gpus_reason"):
        table.caption = Text(f"GPUs: {look['gpus_reason']}")
        table.caption_justify = "left"
    return table


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.0f}"
