"""`explore`: every legal (n_head, n_kv_head, head_dim) of a width on GPUs that need not be there, ranked."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from andrea_bench.axes import AxisRequest
from andrea_bench.cli.options import axis_options, device_option, json_option, resolve_device
from andrea_bench.errors import BadInput, unknown_name

if TYPE_CHECKING:
    from andrea_bench.explore import Candidates, Setting
    from andrea_bench.hardware import Gpu
    from andrea_bench.record import Record

MEASURED_SECONDS = 1.0  # of sampling for each split and suite


@click.command()
@axis_options
@click.option("--gpu", "gpus", multiple=True, metavar="NAMES", help="Of the catalogue (`list gpus`); by commas.")
@click.option("--objective", type=click.Choice(["time", "energy", "kv_cache", "memory"]), default="time",
              show_default=True, help="What the splits are ranked by.")  # fmt: skip
@click.option("--own", metavar="12x64", help="Your own split, n_head x head_dim (12:4x64 with 4 KV heads).")
@click.option("--kernel", default="sdpa", show_default=True, help="The attention kernel.")
@click.option("--tp", "tensor_parallel", default="1", metavar="2,4", help="GPUs that share the heads.")
@click.option("--run", type=click.Path(path_type=Path), metavar="RUN", help="Take measured times from a Run.")
@click.option("--fit-from", type=click.Path(path_type=Path), metavar="RUN", help="Refit the model on a Run first.")
@click.option("--measure", is_flag=True, help="Measure the splits on this machine.")
@click.option("--out", type=click.Path(path_type=Path), help="With --measure: the folder of its Run.")
@click.option("--compiled", "with_facts", is_flag=True, help="Add what the compiler makes of the Triton kernel.")
@click.option("--paper", metavar="2401.14489", help="Put the rules of that paper to the test instead.")
@click.option("--budget", "budget_s", type=float, default=10.0, show_default=True, help="Seconds of search a GPU.")
@device_option
@json_option
def explore_command(
    request: AxisRequest, config: dict[str, Any], gpus: tuple[str, ...], objective: str, own: str | None, kernel: str,
    tensor_parallel: str, run: Path | None, fit_from: Path | None, measure: bool, out: Path | None, with_facts: bool,
    paper: str | None, budget_s: float, device: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Rank every legal n_head x head_dim split of a width on a GPU, with what it costs and what binds it."""
    from andrea_bench.cli.console import console, print_json
    from andrea_bench.explore import candidates, explore_setting
    from andrea_bench.explore.compiled import compiled, compiled_kernel
    from andrea_bench.explore.ranking import EXACT
    from andrea_bench.predict import predicted_kernels

    if kernel not in predicted_kernels("layer"):
        raise unknown_name("attention kernel", kernel, predicted_kernels("attention"))
    if not budget_s > 0:
        raise BadInput(f"--budget {budget_s:g} is no positive number of seconds")
    if run and measure:
        raise BadInput("--run takes times that were measured, --measure measures now; give one")
    names = [name.strip() for text in gpus for name in text.split(",") if name.strip()]
    if paper:
        _audit_paper(paper, names, resolve_device(device) if measure else None, as_json)
        return
    shares = _shares(tensor_parallel)
    # All splits of one width need the same cache and weights; what tells them apart is the number of KV heads.
    every_kv = objective in EXACT
    records: list[Record] = []
    folder = None
    if measure:
        device = resolve_device(device)
        found = candidates(request, own=own, device=device, every_kv=every_kv)
        targets, records, folder = _measure(found, shares, names, kernel, device, out)
    elif run:
        targets, records, folder = _from_run(run, names)
        found = candidates(request, own=own, device="cuda" if targets[0][0] else "cpu", every_kv=every_kv)
    else:
        found = candidates(request, own=own, every_kv=every_kv)
        targets = [(gpu, gpu.name) for gpu in _gpus(names)]
    facts = partial(compiled, compiled_kernel(kernel)) if with_facts else None
    settings, fits = [], []
    for gpu, title in targets:
        known, lines = _refit(fit_from, gpu)
        fits += lines
        for share in shares:
            settings.append(
                explore_setting(
                    found, gpu=gpu, device=title, tensor_parallel=share, objective=objective, kernel=kernel,
                    known=known, records=records, compiled=facts, budget_s=budget_s,
                )
            )  # fmt: skip
    if as_json:
        print_json({"run": str(folder) if folder else None, "fit": fits, "settings": settings})
    else:
        _show(console(), settings, fits)


def _shares(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and 1 <= int(part) <= 1024 for part in parts):
        raise BadInput(f"--tp {text}: takes numbers of GPUs from 1 to 1024, as in 2,4,8")
    return list(dict.fromkeys(int(part) for part in parts))


def _gpus(names: Sequence[str]) -> "list[Gpu]":
    """The GPUs asked for; without names the one of this machine. Raises BadInput."""
    from andrea_bench.environment import environment
    from andrea_bench.hardware import find_gpu, match_device_name

    if names:
        return [find_gpu(name) for name in dict.fromkeys(names)]
    here = environment("cuda").get("gpu") or {}
    gpu = match_device_name(here.get("name") or "")
    if gpu is None:
        raise BadInput(
            "no GPU of the catalogue is here; name one, as in --gpu rtx_4090 (see `list gpus`), or --measure"
        )
    return [gpu]


Targets = list[tuple["Gpu | None", str]]


def _from_run(run: Path, names: Sequence[str]) -> "tuple[Targets, list[Record], Path]":
    from andrea_bench.explore.measured import refuse_other_device, run_gpu
    from andrea_bench.store import read_run

    stored = read_run(run)
    for asked in _gpus(names) if names else []:
        refuse_other_device(stored.head, str(run), asked)
    gpu = run_gpu(stored.head)
    device = (stored.head.environment.get("gpu") or {}).get("name") or "cpu"
    return [(gpu, gpu.name if gpu else device)], stored.records, stored.folder


def _measure(
    found: "Candidates", shares: Sequence[int], names: Sequence[str], kernel: str, device: str, out: Path | None
) -> "tuple[Targets, list[Record], Path]":
    """Measure every split that the kernels are made for; on the GPU that was named, or on what is here."""
    from andrea_bench.cli.console import note
    from andrea_bench.cli.sweep import protocol_for
    from andrea_bench.explore.measured import run_gpu, splits_plan
    from andrea_bench.measure.sweep import Sweep

    protocol = protocol_for(device, ["layer"], time_limit_s=MEASURED_SECONDS)
    plan = splits_plan(found, shares, kernel, device, protocol)
    arguments = (click.get_current_context().find_root().obj or {}).get("arguments", [])
    sweep = Sweep(plan, arguments=arguments, folder=out)
    here = run_gpu(sweep.head)
    blind = device.startswith("cuda") and not sweep.head.environment.get("gpu")  # what is missing the process says
    for asked in _gpus(names) if names and not blind else []:
        if here is None or here.name != asked.name:
            raise BadInput(
                f"--measure measures on {here.name if here else device}, not on {asked.name}: leave --gpu away, or "
                f"name a Run of that GPU with --run"
            )
    with sweep:
        note(f"{sweep.plan_line()}; writing to {sweep.folder}")
        sweep.run(lambda done, text: None)
    return [(here, here.name if here else device)], sweep.records, sweep.folder


def _refit(run: Path | None, gpu: "Gpu | None") -> tuple[Mapping[Any, Any] | None, list[str]]:
    """Efficiencies refitted from a Run of that GPU, and the refit in words."""
    if run is None or gpu is None:
        return None, []
    from andrea_bench.explore.measured import refuse_other_device
    from andrea_bench.predict.fit import fit_lines, fit_records
    from andrea_bench.store import read_run

    stored = read_run(run)
    refuse_other_device(stored.head, str(run), gpu)
    known, left_out = fit_records(stored.records, gpu, str(run))
    return known, fit_lines(known, left_out)


def _audit_paper(paper: str, names: Sequence[str], measured_on: str | None, as_json: bool) -> None:
    """The rules of the paper on the GPUs named, and with --measure on this machine."""
    from andrea_bench.claims.codesign import PAPER, codesign
    from andrea_bench.claims.machine import machine_of
    from andrea_bench.claims.page import lines
    from andrea_bench.claims.sweeps import measure_rules
    from andrea_bench.cli.console import console, print_json
    from andrea_bench.environment import environment
    from andrea_bench.record import RunHead

    if paper != PAPER:
        raise BadInput(f"--paper {paper}: known: {PAPER}")
    gpus = _gpus(names) if names or not measured_on else []
    measured = {}
    if measured_on:
        machine = machine_of(RunHead(started_at="", environment=environment(measured_on)))
        measured = measure_rules(measured_on, machine.name)
    rules = codesign(gpus, measured)
    if as_json:
        print_json({"paper": PAPER, "rules": rules})
        return
    from rich.text import Text

    for line in lines(rules):
        console().print(Text(line))


def _show(out: Any, settings: "Sequence[Setting]", fits: Sequence[str]) -> None:
    from rich.text import Text

    from andrea_bench.explore.tables import print_settings

    for line in fits:
        out.print(Text(f"refitted: {line}"))
    print_settings(out, settings)
