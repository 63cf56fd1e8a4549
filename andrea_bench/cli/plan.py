"""`plan`: the cells of a sweep, the skipped ones with reasons, estimated time and memory; and `plan --fit`."""

from typing import Any

import click

from andrea_bench.axes import AxisRequest
from andrea_bench.cli.options import axis_options, device_option, json_option, nvidia_device_nodes, resolve_device
from andrea_bench.errors import BadInput

SHOWN = 50


@click.command()
@click.argument("suites", nargs=-1)
@axis_options
@click.option("--kernel", "kernels", multiple=True, metavar="NAMES", help="Only these (and the baseline).")
@click.option("--fit", type=click.Choice(["batch", "seq_len"]), help="The largest that memory allows.")
@click.option("--memory", metavar="SIZE", help="Memory to plan for, as in 24GiB; default: what is free here.")
@click.option("--processes", type=int, default=1, help="Fresh processes over which samples are spread.")
@device_option
@json_option
def plan_command(
    suites: tuple[str, ...], request: AxisRequest, config: dict[str, Any], kernels: tuple[str, ...],
    fit: str | None, memory: str | None, processes: int, device: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Show what a sweep would measure, without measuring."""
    from andrea_bench import plan as planning
    from andrea_bench.cli.console import note, print_json
    from andrea_bench.cli.sweep import kernel_names, protocol_for

    device = resolve_device(device or config.get("device"))
    if device.startswith("cuda") and not nvidia_device_nodes():
        note("no NVIDIA GPU here: planned as for one")
    names = suites or tuple(config.get("suites", ()))
    protocol = protocol_for(device, names, processes=processes)
    memory_bytes = parse_size(memory) if memory else planning.available_memory_bytes(device)
    if fit:
        if memory_bytes is None:
            raise BadInput("the memory of this device is not known here; name it with --memory, as in --memory 24GiB")
        value = planning.fit(names, request, fit, device=device, memory_bytes=memory_bytes, protocol=protocol)
        if as_json:
            print_json({"axis": fit, "value": value, "memory_bytes": memory_bytes})
        else:
            print(f"largest {fit} that fits in {memory_bytes / 2**30:.1f} GiB (predicted): {value}")
        return
    made = planning.make_plan(
        names, request, device=device, protocol=protocol,
        only_kernels=kernel_names(kernels, config), memory_bytes=memory_bytes,
    )  # fmt: skip
    if as_json:
        print_json(
            {
                "device": device,
                "estimated_seconds": made.estimated_seconds(),
                "estimated_memory_bytes": made.estimated_memory_bytes(),
                "cells": list(made.documents()),
                "invalid": [{"axes": axes, "reason": reason} for axes, reason in made.invalid],
            }
        )
    else:
        _show(made)


def parse_size(text: str) -> int:
    """Bytes of a size like 24GiB, 80GB or 512MiB. Raises BadInput."""
    units = {"GIB": 2**30, "GB": 10**9, "MIB": 2**20, "MB": 10**6, "KIB": 2**10, "KB": 10**3, "B": 1}
    upper = text.strip().upper()
    for unit, factor in units.items():
        number = upper.removesuffix(unit).strip()
        if upper.endswith(unit) and number.replace(".", "", 1).isdigit():
            return int(float(number) * factor)
    raise BadInput(f"{text!r} is no size; write it as 24GiB, 80GB or 512MiB")


def _show(made: Any) -> None:
    from collections import Counter

    from rich.table import Table
    from rich.text import Text

    from andrea_bench.cli.console import console, note

    out = console()
    cells = list(made.cells())
    table = Table(box=None)
    for head in ("suite", "kernel", "problem", "will be"):
        table.add_column(head, overflow="fold")
    for cell in cells[:SHOWN]:
        what = f"{cell.status}: {cell.reason}" if cell.status else "measured"
        table.add_row(*(Text(t) for t in (cell.suite, cell.kernel.name, cell.problem.label(), what)))
    out.print(table)
    if len(cells) > SHOWN:
        out.print(f"... and {len(cells) - SHOWN:,} more (--json has all)")
    for text in sorted({c.problem.alignment() for c in cells if "misaligned" in c.problem.alignment()})[:SHOWN]:
        out.print(Text(text))
    counts = Counter((cell.suite, cell.status or "to be measured") for cell in cells)
    for (suite, status), n in counts.items():
        out.print(Text(f"{suite}: {n:,} {status}"))
    for axes, reason in made.invalid[:SHOWN]:
        note(f"left out: {reason}  ({', '.join(f'{k}={v}' for k, v in axes.items())})")
    seconds, memory = made.estimated_seconds(), made.estimated_memory_bytes()
    out.print(f"{len(cells):,} cells; estimated {seconds:.0f} s and {memory / 2**30:.2f} GiB (predicted)")
