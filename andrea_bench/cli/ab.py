"""`ab`: two git revisions measured in turns on this machine, then gated."""

import time
from pathlib import Path
from typing import Any

import click

from andrea_bench.axes import AxisRequest
from andrea_bench.cli.gate import noise_warnings, output_options, policy_options, present
from andrea_bench.cli.options import axis_options, device_option, resolve_device
from andrea_bench.errors import BadInput
from andrea_bench.verdicts.policy import Policy


@click.command()
@click.argument("suites", nargs=-1, required=True)
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
    from andrea_bench.cli.console import decided, note
    from andrea_bench.cli.sweep import protocol_for
    from andrea_bench.revisions import open_revisions
    from andrea_bench.trial import RevisionTrial

    deadline = time.monotonic() + parse_seconds(budget)
    device = resolve_device(device or config.get("device"))
    protocol = protocol_for(device, suites, seed=seed)
    arguments = plan_arguments(suites, request, kernels, device)
    with open_revisions(base, head) as revisions:
        trial = RevisionTrial(revisions, arguments, device=device, protocol=protocol, policy=policy)
        note(f"{revisions.base.label} against {revisions.head.label}, at most {budget}")
        document = trial.run(deadline, note)
    document.warnings += noise_warnings(document, trial.head.head.environment)
    if out:
        trial.store(out)
    decided(document.exit_code)
    present(document, **output)
    return document.exit_code


def parse_seconds(text: str) -> float:
    """Seconds of `120s`, `2min` or `2m`. Raises BadInput; a bare number has no unit."""
    units = {"min": 60.0, "m": 60.0, "s": 1.0}
    unit = next((unit for unit in units if text.strip().endswith(unit)), None)
    number = text.strip().removesuffix(unit or "")
    try:
        seconds = float(number) * units[unit or ""]
    except (ValueError, KeyError):
        raise BadInput(f"--budget {text}: write it as 120s or 2min") from None
    if not 0 < seconds <= 86400:
        raise BadInput(f"--budget {text}: is not between 0 and 24 hours")
    return seconds


def plan_arguments(suites: tuple[str, ...], request: AxisRequest, kernels: tuple[str, ...], device: str) -> list[str]:
    """The arguments of `plan` that ask for the same cells: each revision makes its own plan of them."""
    arguments = [*suites, "--device", device]
    if request.model:
        arguments += ["--model", str(request.model)]
    for name, values in request.axes.items():
        arguments += ["-a", f"{name}={','.join(_axis_value(value) for value in values)}"]
    for name, width in request.iso.items():
        arguments += ["--iso", f"{name}={width}"]
    for expression in request.where:
        arguments += ["--where", expression]
    for names in kernels:
        arguments += ["--kernel", names]
    return arguments


def _axis_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
