"""`sweep`: measure the cells of a Plan, store them as a Run, end in tables and answers."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from andrea_bench.axes import AxisRequest
from andrea_bench.cli.options import axis_options, device_option, json_option, resolve_device
from andrea_bench.errors import BadInput
from andrea_bench.protocol import Protocol

# The default sweep ends within two minutes on two cores: so much sampling for each of its Groups.
DEFAULT_GROUP_SECONDS = 2.5


@click.command()
@click.argument("suites", nargs=-1)
@axis_options
@click.option("--kernel", "kernels", multiple=True, metavar="NAMES",
              help="Only these and the baseline; also path.py:function, a kernel of your own.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the Run; default results/<time>-<host>.")
@click.option("--resume", type=click.Path(path_type=Path), metavar="RUN", help="Measure what a Run still lacks.")
@click.option("--processes", type=int, default=1, help="Fresh processes over which samples are spread.")
@click.option("--cache", type=click.Choice(["warm", "cold"]), default="warm", help="State of the cache.")
@click.option("--graph", is_flag=True, help="Time replays of a CUDA graph instead of launches.")
@click.option("--seed", type=int, default=None, help="Seed of inputs and of the order of samples.")
@click.option("--min-samples", type=int, default=None, help="Samples of each kernel and process, at least.")
@click.option("--target", metavar="2%", default=None, help="Stop when every median is known this well.")
@click.option("--time-limit", "time_limit_s", type=float, default=None, help="Seconds of sampling for a Group.")
@click.option(
    "--kernel-limit", "kernel_limit_s", type=float, default=None, help="After so many seconds a kernel hangs."
)
@click.option("--energy", "energy_window_s", type=float, metavar="SECONDS", help="On a GPU, count energy for so long.")
@click.option("--strict", is_flag=True, help="Exit 4 on errors, time-outs and cells out of memory too.")
@click.option("--autotune", is_flag=True, help="Search tiles of Triton kernels on this GPU; prints table rows.")
@click.option("--fake-clock", is_flag=True, hidden=True)
@click.option("--replayed", is_flag=True, hidden=True)
@device_option
@json_option
def sweep_command(
    suites: tuple[str, ...], request: AxisRequest, config: dict[str, Any], kernels: tuple[str, ...],
    out: Path | None, resume: Path | None, strict: bool, autotune: bool, fake_clock: bool, replayed: bool,
    device: str | None, as_json: bool, **timing: Any,
) -> int:  # fmt: skip
    """Measure attention configurations on this machine."""
    from andrea_bench.measure.sweep import Sweep
    from andrea_bench.plan import available_memory_bytes, make_plan

    if resume and not replayed:
        if suites or kernels or request != AxisRequest() or config:
            raise BadInput("--resume goes on with the Run's own suites, axes and kernels; leave them away")
        return _replay(resume)
    device = resolve_device(device or config.get("device"))
    names = suites or tuple(config.get("suites", ()))
    protocol = protocol_for(device, names, **timing)
    plan = make_plan(
        names, request, device=device, protocol=protocol,
        only_kernels=kernel_names(kernels, config), memory_bytes=available_memory_bytes(device),
    )  # fmt: skip
    if autotune:
        return _autotune(plan, as_json)
    if resume and out:
        raise BadInput("--resume continues a Run where it lies; leave --out away")
    sweep = Sweep(plan, arguments=_arguments(), folder=resume or out, resume=bool(resume), fake_clock=fake_clock)
    with sweep:
        interrupted = _run(sweep, as_json)
    _end(sweep, as_json)
    return 130 if interrupted else exit_code(sweep.records, strict=strict)


def _arguments() -> list[str]:
    """The command line as it was given, without the program's name."""
    given: list[str] = (click.get_current_context().find_root().obj or {}).get("arguments", [])
    return given


# Options that --resume takes from its own command line: if they differ from the Run's, it says so.
OWN_OPTIONS = {
    "cache": "--cache", "seed": "--seed", "processes": "--processes", "min_samples": "--min-samples",
    "target": "--target", "time_limit_s": "--time-limit", "kernel_limit_s": "--kernel-limit", "device": "--device",
    "energy_window_s": "--energy",
}  # fmt: skip
OWN_FLAGS = {"graph": "--graph", "strict": "--strict", "as_json": "--json", "fake_clock": "--fake-clock"}


def _replay(folder: Path) -> int:
    """Go on with the sweep whose arguments the Run holds: --resume alone means the same suites and axes. Raises
    BadInput of a Run that another verb made."""
    from andrea_bench.store import read_head, run_folder

    stored = read_head(run_folder(folder)).arguments
    if "sweep" not in stored:
        made = f"by `{stored[0]}`" if stored else "by no command line that is known"
        raise BadInput(f"--resume {folder}: this Run was made {made}, not by a sweep; measure anew with --out")
    kept = _without_option(stored[stored.index("sweep") + 1 :], "--out", "--resume")
    kept = [argument for argument in kept if argument not in ("--json", "--strict", "--replayed")]
    context = click.get_current_context()
    from_here = click.core.ParameterSource.COMMANDLINE
    given = [name for name in context.params if context.get_parameter_source(name) == from_here]
    own = [text for name in given if name in OWN_OPTIONS for text in (OWN_OPTIONS[name], str(context.params[name]))]
    own += [OWN_FLAGS[name] for name in given if name in OWN_FLAGS]
    arguments = [*kept, *own, "--resume", str(folder), "--replayed"]
    result: int = sweep_command.main(arguments, standalone_mode=False, obj=context.find_root().obj)
    return result


def _without_option(arguments: list[str], *names: str) -> list[str]:
    """Arguments without some options and their values, in both spellings (`--out X`, `--out=X`)."""
    kept, skip = [], False
    for argument in arguments:
        if not skip and argument not in names and not argument.startswith(tuple(f"{name}=" for name in names)):
            kept.append(argument)
        skip = argument in names and not skip
    return kept


def protocol_for(device: str, suites: Sequence[str], **given: Any) -> Protocol:
    """The Protocol of a device, with what the user gave. Without suites: the default sweep's time limit."""
    fields: dict[str, Any] = {}
    if device.startswith("cuda"):
        fields["timing_mode"] = "cuda_graph" if given.get("graph") else "cuda_event"
    elif given.get("graph"):
        raise BadInput("--graph needs a CUDA device")
    if not suites:
        fields["time_limit_s"] = DEFAULT_GROUP_SECONDS
    for name in ("processes", "cache", "seed", "min_samples", "time_limit_s", "kernel_limit_s", "energy_window_s"):
        if given.get(name) is not None:
            fields[name] = given[name]
    if given.get("target"):
        fields["target"] = _share(given["target"])
    return Protocol(**fields)


def _share(text: str) -> float:
    number = text.strip().removesuffix("%")
    try:
        if not text.strip().endswith("%"):
            raise ValueError
        return float(number) / 100
    except ValueError:
        raise BadInput(f"--target {text}: write it in percent, as in --target 2%") from None


def kernel_names(kernels: Sequence[str], config: dict[str, Any]) -> list[str]:
    """Kernel names from options (each may hold several, by commas) and the config file."""
    given = [name.strip() for text in kernels for name in text.split(",")]
    return [name for name in given or config.get("kernels", []) if name]


def exit_code(records: Sequence[Any], *, strict: bool = False) -> int:
    """5 if any cell is wrong, 4 if none could run (or, when strict, any failed), else 0."""
    statuses = {record.status for record in records}
    if "wrong" in statuses:
        return 5
    if not statuses & {"ok", "throttled"}:
        return 4
    if strict and statuses & {"error", "out_of_memory", "timeout"}:
        return 4
    return 0


def _run(sweep: Any, as_json: bool) -> bool:
    """Measure with a progress line; True when it was interrupted. A second Ctrl-C ends at once."""
    import signal

    from andrea_bench.cli.console import note, notes

    progress = _progress(notes())
    note(f"{sweep.plan_line()}; writing to {sweep.folder}")
    for axes, reason in sweep.plan.invalid:
        note(f"left out: {reason}  ({', '.join(f'{k}={v}' for k, v in axes.items())})")
    try:
        with progress:
            bar = progress.add_task("", total=sweep.total_seconds)
            sweep.run(lambda done, text: progress.update(bar, completed=done, description=text))
        return False
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sweep.interrupt()
        note(f"interrupted; all that was finished is stored. Continue with: sweep --resume {sweep.folder}")
        return True


def _progress(console: Any) -> Any:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _end(sweep: Any, as_json: bool) -> None:
    from andrea_bench.cli.console import console, print_json
    from andrea_bench.report.answers import answers
    from andrea_bench.report.rows import group_rows

    groups = group_rows(sweep.records)
    said = answers(groups, sweep.head.environment)
    if as_json:
        print_json({"run": str(sweep.folder), "head": sweep.head, "records": sweep.records, "answers": said})
        return
    from andrea_bench.report.terminal import count_line, print_run

    out = console()
    print_run(out, groups, said)
    out.print(f"{count_line(groups)}. The Run lies in {sweep.folder}", markup=False, soft_wrap=True)
    out.print(f"Show it again: andrea-bench show {_quoted(sweep.folder)}", markup=False, soft_wrap=True)


def _quoted(path: os.PathLike[str]) -> str:
    import shlex

    return shlex.quote(str(path))


def _autotune(plan: Any, as_json: bool) -> int:
    from andrea_bench.cli.console import console, note, print_json
    from andrea_bench.measure.autotune import autotune, best, compute_capability
    from andrea_bench.measure.clock import make_clock
    from andrea_bench.report.words import duration

    capability = compute_capability(plan.device)
    trials = []
    for trial in autotune(plan, make_clock(plan.protocol.timing_mode, plan.protocol.cache, plan.device), capability):
        trials.append(trial)
        note(f"{trial.kernel} {trial.problem.label()} {trial.row}: {trial.reason or duration(trial.median_us)}")
    if not trials:
        note("--autotune: no kernel of this plan has tiles to try for its Problems; attention has some in 16-bit types")
    found = best(trials)
    if as_json:
        print_json({"compute_capability": capability, "trials": trials, "best": found})
        return 0 if found else 4
    for trial in found:
        part = f" {trial.part}" if trial.part else ""
        where = f"{trial.kernel}{part}, {trial.problem.label()}"
        console().print(f"# {where}: {duration(trial.median_us)} (measured)\n{trial.row}", markup=False)
    return 0 if found else 4
