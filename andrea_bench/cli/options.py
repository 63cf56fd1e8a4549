"""Options that several verbs share: the axes of a sweep, the device, --json."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from andrea_bench.axes import AxisRequest, parse_axis, read_config
from andrea_bench.errors import BadInput

Command = Callable[..., Any]


def axis_options(function: Command) -> Command:
    """Adds --model, -a/--axis, --iso, --where and --config; the function gets `request` (an AxisRequest) and
    `config` (what else the file of --config says: suites, kernels, device). The command line beats the file,
    axis by axis."""

    @click.option("--model", help="A preset (see `list models`) or the path of a Hugging Face config.json.")
    @click.option("-a", "--axis", "axes", multiple=True, metavar="NAME=VALUES",
                  help="n_head=8,12  head_dim=64:128:8  seq_len=pow2:8:12  dtype=bfloat16; repeatable.")  # fmt: skip
    @click.option("--iso", multiple=True, metavar="d_model=N", help="Every legal n_head x head_dim split of a width.")
    @click.option("--where", multiple=True, metavar="EXPRESSION", help="Keep what fits: 'n_head * head_dim <= 1024'.")
    @click.option("--config", type=click.Path(path_type=Path), help="A TOML file that holds the same.")
    @functools.wraps(function)
    def with_request(
        *args: Any, model: str | None, axes: tuple[str, ...], iso: tuple[str, ...], where: tuple[str, ...],
        config: Path | None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        request, rest = _from_config(config)
        given = AxisRequest(
            model=model or request.model,
            axes={**request.axes},
            iso={**request.iso, **_iso(iso)},
            where=[*request.where, *where],
            threads=request.threads,
        )
        for text in axes:
            name, values = parse_axis(text)
            if name == "threads":
                given = msgspec.structs.replace(given, threads=values)
            else:
                given.axes[name] = values
        return function(*args, request=given, config=rest, **kwargs)

    return with_request


def _iso(texts: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for text in texts:
        name, values = parse_axis(text)
        if name != "d_model" or len(values) != 1:
            raise BadInput(f"--iso {text}: takes one width, as in --iso d_model=768")
        found[name] = int(values[0])
    return found


def _from_config(path: Path | None) -> tuple[AxisRequest, dict[str, Any]]:
    if path is None:
        return AxisRequest(), {}
    content = dict(read_config(path))
    axes = dict(content.pop("axes", {}))
    threads = axes.pop("threads", None)
    request = AxisRequest(
        model=content.pop("model", None),
        axes=axes,
        iso=content.pop("iso", {}),
        where=content.pop("where", []),
        threads=threads,
    )
    return request, content


def json_option(function: Command) -> Command:
    """Adds --json; the function gets `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout, nothing else.")(function)


def device_option(function: Command) -> Command:
    """Adds --device; the function gets `device` (None: to be chosen by resolve_device)."""
    return click.option("--device", help="cpu, cuda or cuda:N; default: cuda if there is one, else cpu.")(function)


def resolve_device(device: str | None) -> str:
    """The device asked for, or the default. Looks for a GPU without importing torch or touching CUDA."""
    if device is None:
        return "cuda" if nvidia_device_nodes() else "cpu"
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()) or (kind == "cpu" and index):
        raise BadInput(f"--device {device}: is none of cpu, cuda, cuda:N")
    return device


def nvidia_device_nodes() -> bool:
    """Whether the NVIDIA driver offers a device here (its device files, or WSL's)."""
    import os

    if os.environ.get("CUDA_VISIBLE_DEVICES", "unset") in ("", "-1"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()
