"""`ab`: two git revisions measured in turns on this machine, then gated."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from andrea_bench.axes import AxisRequest
from andrea_bench.cli.gate import check_output, noise_warnings, output_options, policy_options, present
from andrea_bench.cli.options import axis_options, device_option, resolve_device
from andrea_bench.errors import AndreaError, BadInput
from andrea_bench.verdicts.policy import Policy, plain_number

if TYPE_CHECKING:
    from andrea_bench.trial import RevisionTrial
    from andrea_bench.verdicts import Document

LEAST_KERNEL_LIMIT_S = 30.0  # a kernel may be compiled in its first call


@click.command()
@click.argument("suites", nargs=-1)
@click.option("--base", required=True, metavar="REV", help="The revision to compare with.")
@click.option("--head", metavar="REV", help="The revision that is judged; default: the working tree as it is.")
@click.option("--budget", default="120s", show_default=True, metavar="120s", help="The most time to spend.")
@click.option("--kernel", "kernels", multiple=True, metavar="NAMES", help="Only these and the baseline.")
@click.option("--seed", type=int, default=None, help="Seed of inputs and of the order of turns.")
@click.option("--out", type=click.Path(path_type=Path), help="Also store both sides as Runs, in DIR/base and DIR/head.")
@axis_options
@device_option
@policy_options
@output_options
def ab_command(
    suites: tuple[str, ...], base: str, head: str | None, budget: str, kernels: tuple[str, ...], seed: int | None,
    out: Path | None, request: AxisRequest, config: dict[str, Any], device: str | None, policy: Policy,
    output: dict[str, Any],
) -> int:  # fmt: skip
    """Measure two revisions in turns, in pairs of fresh processes, and end as gate does.

    Stops as soon as every cell is settled, or the budget is spent.
    """
    import msgspec

    from andrea_bench.cli.console import decided, note
    from andrea_bench.cli.sweep import kernel_names, protocol_for
    from andrea_bench.revisions import open_revisions
    from andrea_bench.trial import RevisionTrial

    seconds = parse_seconds(budget)
    deadline = time.monotonic() + seconds
    names = suites or tuple(config.get("suites", ()))
    if not names:
        raise BadInput("ab: no suite is named; `andrea-bench list suites` shows them")
    device = resolve_device(device or config.get("device"))
    protocol = protocol_for(device, names, seed=seed)
    protocol = msgspec.structs.replace(
        protocol,
        threads=number_of_threads(request),
        # A kernel that hangs must leave time for the others.
        kernel_limit_s=min(protocol.kernel_limit_s, max(LEAST_KERNEL_LIMIT_S, seconds / 2)),
    )
    arguments = plan_arguments(names, request, kernel_names(kernels, config), device)
    check_output(output)
    check_runs(out)
    with open_revisions(base, head) as revisions:
        trial = RevisionTrial(revisions, arguments, device=device, protocol=protocol, policy=policy)
        note(f"{revisions.base.label} against {revisions.head.label} of {revisions.repository}, at most {budget}")
        document = _measure(trial, deadline, out)
    document.warnings += noise_warnings(document, trial.head.head.environment)
    decided(document.exit_code)
    try:
        present(document, **output)
    finally:
        if out:
            trial.store(out)
    return document.exit_code


def _measure(trial: "RevisionTrial", deadline: float, out: Path | None) -> "Document":
    """Run the trial; where it is cut off, the pairs that were measured whole are stored."""
    from andrea_bench.cli.console import note

    try:
        return trial.run(deadline, note)
    except (KeyboardInterrupt, AndreaError):
        if out and trial.pairs:
            trial.store(out, complete=False)
            note(f"cut off; the {trial.pairs} pairs that were finished are stored in {out}")
        raise


# ---- what is asked for ----------------------------------------------------------------------------------
def parse_seconds(text: str) -> float:
    """Seconds of `120s`, `2min` or `2m`. Raises BadInput; a bare number has no unit."""
    units = {"min": 60.0, "m": 60.0, "s": 1.0}
    unit = next((unit for unit in units if text.strip().endswith(unit)), None)
    number = text.strip().removesuffix(unit or "")
    try:
        seconds = plain_number(number) * units[unit or ""]
    except (ValueError, KeyError):
        raise BadInput(f"--budget {text}: write it as 120s or 2min") from None
    if not 0 < seconds <= 86400:
        raise BadInput(f"--budget {text}: must be more than 0 and at most 24 hours")
    return seconds


def number_of_threads(request: AxisRequest) -> int:
    """The threads of each measuring process. Raises BadInput where several numbers are asked for: a process has one,
    and the same cell with another number would be another measurement under the same name."""
    threads: list[int] = request.threads or [1]
    if len(threads) > 1:
        asked = ",".join(map(str, threads))
        raise BadInput(f"threads={asked}: processes that are compared have one number of threads; name one of these")
    return threads[0]


def plan_arguments(suites: Sequence[str], request: AxisRequest, kernels: Sequence[str], device: str) -> list[str]:
    """The arguments of `plan` that ask for the same cells: each revision makes its own plan of them."""
    arguments = [*suites, "--device", device]
    if request.model:
        arguments += ["--model", str(request.model)]
    for name, values in request.axes.items():
        arguments += ["-a", f"{name}={','.join(_axis_value(value) for value in values)}"]
    if request.threads:
        arguments += ["-a", f"threads={number_of_threads(request)}"]
    for name, width in request.iso.items():
        arguments += ["--iso", f"{name}={width}"]
    for expression in request.where:
        arguments += ["--where", expression]
    for names in kernels:
        arguments += ["--kernel", names]
    return arguments


def _axis_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- where it is to be written --------------------------------------------------------------------------
def check_runs(folder: Path | None) -> None:
    """Raises BadInput where folder/base and folder/head can't become Runs: they hold some, or can't be written."""
    from andrea_bench.files import try_to_write
    from andrea_bench.store import HEAD, RECORDS

    for side in (folder / "base", folder / "head") if folder else ():
        if any((side / name).exists() for name in (HEAD, RECORDS)):
            raise BadInput(f"{side}: already holds a Run; name another folder with --out")
        there = next(place for place in (side, *side.absolute().parents) if place.exists())
        try_to_write(there, side)
