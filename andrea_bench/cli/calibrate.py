"""`calibrate`: this machine's noise (A/A) and its ceilings, stored for gate and report."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from andrea_bench.axes import AxisRequest
from andrea_bench.cli.ab import number_of_threads, parse_seconds
from andrea_bench.cli.options import axis_options, device_option, json_option, resolve_device
from andrea_bench.errors import EnvironmentUnfit

if TYPE_CHECKING:
    from andrea_bench.plan import Group
    from andrea_bench.protocol import Protocol

DEFAULT_SUITES = ("projection", "attention")
DEFAULT_SEQ_LEN = 256  # on a CPU, where nothing else is asked for: a round of the attention suite takes 0.1 s


@click.command()
@click.argument("suites", nargs=-1)
@click.option("--budget", default="120s", show_default=True, metavar="120s", help="Time for the A/A of all suites.")
@click.option("--kernel", "kernels", multiple=True, metavar="NAMES", help="Only these and the baseline.")
@click.option("--out", type=click.Path(path_type=Path), help="File to write; default: in the user's cache folder.")
@axis_options
@device_option
@json_option
def calibrate_command(
    suites: tuple[str, ...], budget: str, kernels: tuple[str, ...], out: Path | None, request: AxisRequest,
    config: dict[str, Any], device: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Measure the noise between processes of the same code, and the best matmul and copy of this machine.

    Gates then say when an allowance is tighter than the noise; reports, what share of the machine was used.
    """
    from datetime import UTC, datetime

    import msgspec

    from andrea_bench.calibration import Calibration, default_file
    from andrea_bench.cli.console import note, print_json
    from andrea_bench.cli.sweep import kernel_names, protocol_for
    from andrea_bench.environment import environment
    from andrea_bench.files import check_file, make_folder, write_whole
    from andrea_bench.measure.ceilings import ceilings
    from andrea_bench.noise import suite_noise

    seconds = parse_seconds(budget)
    device = resolve_device(device or config.get("device"))
    names = suites or tuple(config.get("suites", ())) or DEFAULT_SUITES
    if device == "cpu" and not (request.model or request.axes or request.iso):
        request.axes["seq_len"] = [DEFAULT_SEQ_LEN]
    protocol = msgspec.structs.replace(protocol_for(device, names), threads=number_of_threads(request))
    groups = {name: _groups(name, request, device, protocol, kernel_names(kernels, config)) for name in names}
    file = out or default_file()
    make_folder(file.parent)
    check_file(file)
    found = Calibration(
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        device=device,
        environment=environment(device),
        ceilings=ceilings(device, protocol.threads, note),
    )
    for name in names:
        found.suites[name] = suite_noise(groups[name], device, protocol, seconds / len(names), note)
    write_whole(file, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    if as_json:
        print_json(found)
    else:
        _show(found, file)
    return 0


def _groups(
    suite: str, request: AxisRequest, device: str, protocol: "Protocol", kernels: Sequence[str]
) -> "list[Group]":
    """What is measured of a suite. Raises EnvironmentUnfit, before anything is, where none of it can run here."""
    from andrea_bench.plan import available_memory_bytes, make_plan

    plan = make_plan(
        (suite,), request, device=device, protocol=protocol, only_kernels=kernels,
        memory_bytes=available_memory_bytes(device),
    )  # fmt: skip
    if not any(group.members for group in plan.groups):
        reasons = [cell.reason for cell in plan.cells()] + [reason for _, reason in plan.invalid]
        raise EnvironmentUnfit(f"suite {suite}: no cell of it can run here: {(reasons or ['its axes name none'])[0]}")
    return plan.groups


def _show(found: Any, file: Path) -> None:
    from rich.text import Text

    from andrea_bench.calibration import MOST_DISTURBED
    from andrea_bench.cli.console import console

    out = console()
    best = ", ".join(f"{name} {tflops:.3g}" for name, tflops in found.ceilings.matmul_tflops.items())
    out.print(Text(f"best matmul, TFLOP/s, {found.ceilings.threads} threads: {best}"))
    out.print(Text(f"best copy: {found.ceilings.copy_gb_per_s:.3g} GB/s"))
    for name, noise in found.suites.items():
        least = noise.smallest_allowance
        met = f"{100 * least:g} % and more can be met" if least is not None else "no allowance up to 20 % can be met"
        if not noise.false_alarm_rate:
            met = "too few pairs to tell which allowance can be met: calibrate with a larger --budget"
        alarms = ", ".join(f"{allowance}: {100 * rate:.0f} %" for allowance, rate in noise.false_alarm_rate.items())
        pairs = f"{noise.pairs} pairs of {noise.pair_seconds:.1f} s"
        out.print(
            Text(f"{name}: {100 * noise.noise:.2g} % between two processes ({pairs}); in ab's default budget {met}")
        )
        if noise.disturbed > MOST_DISTURBED:
            out.print(
                Text(f"{name}: the machine had other things to do in {100 * noise.disturbed:.0f} % of the turns; "
                     "calibrate again when it is quiet")
            )  # fmt: skip
        if alarms:
            out.print(Text(f"{name}: false alarms by allowance, replayed: {alarms}"))
    out.print(Text(f"stored in {file}"))
