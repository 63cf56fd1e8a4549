"""`claims`: the statements about multi-head attention, each put to the test here, with its numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from andrea_bench.cli.options import device_option, json_option, resolve_device
from andrea_bench.errors import BadInput, EnvironmentUnfit, unknown_name

if TYPE_CHECKING:
    from andrea_bench.claims.machine import Machine
    from andrea_bench.hardware import Gpu
    from andrea_bench.inspect import Facts
    from andrea_bench.record import Record

DEFAULT_GPUS = "rtx_4090,h200_sxm"
GROUP_SECONDS = 1.0  # of sampling for each Group: the whole stays within five minutes on two cores
DEFAULT_TRAINING = Path("results/head-specialisation.json")
# One that was published, shown where none was made here.
PUBLISHED_TRAINING = Path("reports/head-specialisation.json")


@click.command()
@click.option("--gpu", "gpus", default=DEFAULT_GPUS, show_default=True, metavar="NAMES",
              help="GPUs to compile and predict for; by commas.")  # fmt: skip
@click.option("--dtype", "dtypes", default="bfloat16,float16,tf32,float32", show_default=True,
              help="Of the kernels that are compiled; by commas.")  # fmt: skip
@click.option("--grid", type=click.Choice(["full", "small", "none"]), default="full", show_default=True,
              help="What is measured on this machine.")  # fmt: skip
@click.option("--run", type=click.Path(path_type=Path), metavar="RUN", help="An earlier Run of `claims` instead.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the Run that is measured.")
@click.option("--no-compile", is_flag=True, help="Leave out what needs triton.")
@click.option("--train", is_flag=True, help="Train the small transformers first (up to 40 minutes).")
@click.option("--training", type=click.Path(path_type=Path), metavar="FILE",
              help=f"Where the training's result lies; default {DEFAULT_TRAINING}.")  # fmt: skip
@click.option("--markdown", "markdown_file", type=click.Path(path_type=Path), metavar="FILE", help="Also as a page.")
@device_option
@json_option
def claims_command(
    gpus: str, dtypes: str, grid: str, run: Path | None, out: Path | None, no_compile: bool, train: bool,
    training: Path | None, markdown_file: Path | None, device: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Put the statements about multi-head attention to the test: holds, fails, depends, or not testable here."""
    from andrea_bench.claims import audit
    from andrea_bench.claims.page import lines, markdown
    from andrea_bench.cli.console import console, note, print_json
    from andrea_bench.files import check_file, make_folder, write_whole
    from andrea_bench.hardware import find_gpu
    from andrea_bench.problem import DTYPES

    if markdown_file:  # told before minutes of measuring
        make_folder(markdown_file.parent)
        check_file(markdown_file)
    found = [find_gpu(name) for name in _names(gpus)]
    for gpu in found:
        if gpu.sm_count is None:
            raise BadInput(f"{gpu.name} is a compiler target; name a GPU of that architecture (`list gpus`)")
    kinds = _names(dtypes)
    for dtype in kinds:
        if dtype not in DTYPES:
            raise unknown_name("dtype", dtype, DTYPES)
    if train:
        training = _train(training or DEFAULT_TRAINING)
    elif training is None:
        training = next((path for path in (DEFAULT_TRAINING, PUBLISHED_TRAINING) if path.is_file()), None)
    records, folder, machine = _records(grid, run, out, resolve_device(device))
    facts = [] if no_compile else _facts(found, kinds)
    claims = audit(records, found, facts, training, machine)
    if markdown_file:
        arguments = (click.get_current_context().find_root().obj or {}).get("arguments", ["claims"])
        page = markdown(claims, " ".join(["andrea-bench", *arguments]), machine.name)
        write_whole(markdown_file, page.encode())
        note(f"wrote {markdown_file}")
    if as_json:
        print_json({"run": str(folder) if folder else None, "training": str(training) if training else None,
                    "claims": claims})  # fmt: skip
        return
    from rich.text import Text

    for line in lines(claims):
        console().print(Text(line))


def _names(text: str) -> list[str]:
    found = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not found:
        raise BadInput("names are missing: give at least one, by commas")
    return found


def _records(
    grid: str, run: Path | None, out: Path | None, device: str
) -> "tuple[Sequence[Record], Path | None, Machine]":
    """Of the Run named, or measured now; and what it was measured on."""
    from andrea_bench.claims.machine import NOT_NAMED, machine_of
    from andrea_bench.store import read_run

    if run is not None:
        stored = read_run(run)
        return stored.records, stored.folder, machine_of(stored.head)
    if grid == "none":
        return [], None, NOT_NAMED
    from andrea_bench.claims.plans import claims_plan
    from andrea_bench.cli.console import note
    from andrea_bench.cli.sweep import protocol_for
    from andrea_bench.measure.sweep import Sweep

    plan = claims_plan(grid, device, protocol_for(device, ["projection"], time_limit_s=GROUP_SECONDS))
    arguments = (click.get_current_context().find_root().obj or {}).get("arguments", [])
    with Sweep(plan, arguments=arguments, folder=out) as sweep:
        note(f"{sweep.plan_line()}; writing to {sweep.folder}")
        sweep.run(lambda done, text: None)
    return sweep.records, sweep.folder, machine_of(sweep.head)


def _facts(gpus: "Sequence[Gpu]", dtypes: Sequence[str]) -> "list[Facts]":
    """Facts, or none with a note where triton or its tools are missing."""
    from andrea_bench.claims.audit import tile_facts
    from andrea_bench.cli.console import note

    try:
        return tile_facts(gpus, dtypes)
    except EnvironmentUnfit as error:
        note(f"nothing was compiled: {error}")
        return []


def _train(path: Path) -> Path:
    """Train, and store the result where it lies for later calls."""
    import msgspec

    from andrea_bench.claims.training import train
    from andrea_bench.cli.console import note
    from andrea_bench.files import make_folder, write_whole

    make_folder(path.parent)
    result: dict[str, Any] = train(said=note)
    write_whole(path, msgspec.json.format(msgspec.json.encode(result), indent=1))
    note(f"wrote {path}")
    return path
