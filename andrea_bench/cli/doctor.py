"""`doctor`: the machine, what can be measured on it, and what would make that steadier."""

import time
from typing import TYPE_CHECKING

import click

from andrea_bench.cli.console import console, print_json
from andrea_bench.cli.options import json_option
from andrea_bench.errors import EnvironmentUnfit
from andrea_bench.hardware.readings import Readings

if TYPE_CHECKING:
    from andrea_bench.kernel import Kernel
    from andrea_bench.problem import Problem

LOOK_S = 0.5  # long enough for the kernel's ticks of 10 ms to tell load from none


@click.command("doctor")
@json_option
def doctor(as_json: bool) -> None:
    """Machine, GPUs, libraries, which kernels can run here and why others can't; advice."""
    report = examine()
    if as_json:
        print_json(report)
    else:
        _show(report)
    if not report["can_measure"]:
        reasons = "; ".join(f"{d['device']}: {d['reason']}" for d in report["devices"] if d["reason"])
        raise EnvironmentUnfit(f"nothing can be measured here: {reasons or 'no kernel can run'}")


def examine() -> Readings:
    """What doctor knows, JSON-ready: can_measure, devices, environment, live, kernels, advice."""
    from andrea_bench.environment import environment
    from andrea_bench.measure.advice import advice
    from andrea_bench.measure.live import Live

    live = Live()
    started = time.monotonic()
    about = environment("cpu")
    usable = torch_devices()
    kernels = [row for device, reason in usable.items() for row in _kernels(device, reason)]
    time.sleep(max(0.0, LOOK_S - (time.monotonic() - started)))
    now = live.read()
    return {
        "can_measure": any(row["can_run"] for row in kernels),
        "devices": [{"device": device, "reason": reason} for device, reason in usable.items()],
        "environment": about,
        "live": now,
        "kernels": kernels,
        "advice": [one._asdict() for one in advice(about["cpu"], now)],
    }


def torch_devices() -> dict[str, str | None]:
    """cpu and cuda, each with why torch can't use it, or None."""
    try:
        import torch
    except ImportError as error:
        # Also a torch that is there, but whose libraries can't be loaded.
        reason = f"torch can't be imported ({error}): pip install torch"
        return {"cpu": reason, "cuda": reason}
    if torch.cuda.is_available():
        return {"cpu": None, "cuda": None}
    if torch.version.cuda is None:
        return {"cpu": None, "cuda": f"torch {torch.__version__} is built without CUDA"}
    return {"cpu": None, "cuda": "torch sees no CUDA device: no GPU, no driver, or CUDA_VISIBLE_DEVICES hides it"}


def _kernels(device: str, reason: str | None) -> list[Readings]:
    """Every kernel on `device`: whether it can run there in some dtype and direction, else why not."""
    from andrea_bench.kernel import kernels

    rows = []
    for kernel in kernels():
        why = reason or _why_not(kernel, device)
        rows.append({"op": kernel.op, "kernel": kernel.name, "device": device, "can_run": why is None, "reason": why})
    return rows


def _why_not(kernel: "Kernel", device: str) -> str | None:
    """Why the kernel can't be made ready for any small Problem that it should do; None as soon as it can."""
    from andrea_bench.errors import Unsupported
    from andrea_bench.measure.inputs import make_inputs

    first: str | None = None
    for problem in _small_problems(kernel):
        reason = kernel.unsupported(problem, device)
        if reason is None:
            try:
                kernel.prepare(problem, make_inputs(kernel.op, problem, device=device, seed=0))
                return None
            except Unsupported as error:
                reason = str(error)
            except Exception as error:  # whatever a library does on this machine is what the user asks about
                reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        first = first or reason
    return first


def _small_problems(kernel: "Kernel") -> list["Problem"]:
    from andrea_bench.problem import Problem

    small = Problem(seq_len=16, kv_len=16, n_head=2, head_dim=64)
    return [
        small.replace(seq_len=1 if direction == "decode" else 16, dtype=dtype, direction=direction)
        for direction in kernel.directions
        for dtype in kernel.dtypes
    ]


# ---- for people -----------------------------------------------------------------------------------------
def _show(report: Readings) -> None:
    about, now = report["environment"], report["live"]
    machine = about["cpu"]
    out = console()
    out.print("Machine", style="bold")
    _facts(
        {
            "host": about["host"],
            "system": f"{about['os']['system']} {about['os']['release']} {about['os']['machine']}",
            "CPU": f"{_or(machine, 'model')}, {machine['logical_cpus']} logical, {_or(machine, 'cores')} cores",
            "usable CPUs": machine["affinity"],
            "kind": {True: "virtual machine", False: "bare metal", None: "unknown"}[machine["virtual_machine"]],
            "memory": _bytes(machine["memory_bytes"]),
            "governor": _or(machine, "governor"),
            "clock": _or(now["cpu"], "cpu_clock_mhz", " MHz"),
            "steal": _share(now["cpu"]["cpu_steal_share"]),
            "other processes": _or(now["cpu"], "cpu_foreign_cpus", " CPUs busy"),
            "temperature": _or(now["cpu"], "cpu_temperature_celsius", " degrees Celsius"),
            "huge pages": _or(machine, "transparent_huge_pages"),
        }
    )
    out.print("\nGPUs", style="bold")
    for gpu in now["gpus"]:
        _facts(_gpu_facts(gpu))
    versions = {"driver": about.get("driver_version"), "CUDA of the driver": about.get("cuda_driver_version")}
    _facts({name: version for name, version in versions.items() if version})
    if now.get("gpus_reason"):
        _facts({"none" if not now["gpus"] else "not read": now["gpus_reason"]})
    out.print("\nLibraries", style="bold")
    _facts({"python": about["python"], **about["libraries"]})
    out.print("\nKernels", style="bold")
    for device in report["devices"]:
        _show_kernels(device["device"], [row for row in report["kernels"] if row["device"] == device["device"]])
    out.print("\nFor steadier measurements", style="bold")
    _facts({str(n): f"{one['cause']}: {one['cure']}" for n, one in enumerate(report["advice"], 1)})
    if not report["advice"]:
        out.print("  nothing found that unsettles them")


def _gpu_facts(gpu: Readings) -> Readings:
    processes = gpu["processes"]
    return {
        "GPU": f"{_or(gpu, 'name')}, {_or(gpu, 'uuid')}",
        "memory": f"{_bytes(gpu['memory_used_bytes'])} of {_bytes(gpu['memory_total_bytes'])} used",
        "SM clock": f"{_or(gpu, 'sm_clock_mhz')} of {_or(gpu, 'max_sm_clock_mhz')} MHz",
        "set to": _or(gpu, "application_sm_clock_mhz", " MHz (application clock)"),
        "state": _or(gpu, "performance_state"),
        "power": f"{_or(gpu, 'power_watts')} of {_or(gpu, 'power_limit_watts')} W",
        "temperature": _or(gpu, "temperature_celsius", " degrees Celsius"),
        "utilisation": _or(gpu, "gpu_utilisation_percent", " %"),
        "slowed by": ", ".join(gpu["event_reasons"] or []) or _or(gpu, "event_reasons", none="nothing"),
        "ECC, MIG": f"{_on(gpu['ecc_enabled'])}, {_on(gpu['mig_enabled'])}",
        "processes": _or(gpu, "processes") if processes is None else str(len(processes)),
    }


def _show_kernels(device: str, rows: list[Readings]) -> None:
    running = [row for row in rows if row["can_run"]]
    found = {f"{device}: {len(running)} of {len(rows)}": _names(running) or "none can run"}
    for reason in dict.fromkeys(row["reason"] for row in rows if row["reason"]):
        because = [row for row in rows if row["reason"] == reason]
        found[f"  not {len(because)}"] = f"{reason}: {_names(because)}" if running else reason
        if not running and len(because) == len(rows):
            break
        _facts(found)
        found = {}
    _facts(found)


def _names(rows: list[Readings]) -> str:
    return ", ".join(dict.fromkeys(row["kernel"] for row in rows))


def _facts(facts: Readings) -> None:
    """Two columns: name and text; long texts wrap within theirs."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=16, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in facts.items():
        grid.add_row(Text(f"  {name}"), Text(str(text)))
    if facts:
        console().print(grid)


def _or(readings: Readings, name: str, unit: str = "", none: str = "n/a") -> str:
    """The reading with its unit, or n/a with the reason."""
    value = readings.get(name)
    if value is not None and value != []:
        return f"{value}{unit}"
    reason = readings.get(f"{name}_reason")
    return f"n/a ({reason})" if reason else none


def _share(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1%}"


def _bytes(value: int | None) -> str:
    return "n/a" if value is None else f"{value / 2**30:.1f} GiB"


def _on(value: bool | None) -> str:
    return {True: "on", False: "off", None: "n/a"}[value]
