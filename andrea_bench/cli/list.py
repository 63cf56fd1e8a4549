"""`list suites|kernels|gpus|models`: what there is."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from andrea_bench.cli.console import console, print_json

if TYPE_CHECKING:
    from andrea_bench.hardware import Gpu

Row = dict[str, Any]


@click.command("list")
@click.argument("what", type=click.Choice(["suites", "kernels", "gpus", "models"]))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout, and nothing else.")
def list_command(what: str, as_json: bool) -> None:
    """What there is: suites, kernels, GPUs of the catalogue, model presets."""
    documents, columns = _KINDS[what]
    found = documents()
    if as_json:
        print_json({what: found})
        return
    _print_table(what, [{title: _cell(read(one)) for title, read in columns.items()} for one in found])


def _suites() -> list[Row]:
    from andrea_bench.suite import suites

    return [
        {
            "name": suite.name,
            "question": suite.question,
            "kernels": [{"op": op, "kernel": kernel} for op, kernel in suite.members],
            "baseline": suite.baseline,
        }
        for suite in suites().values()
    ]


def _kernels() -> list[Row]:
    from andrea_bench.kernel import kernels

    return [
        {
            "op": kernel.op,
            "kernel": kernel.name,
            "part": kernel.part,
            "summary": kernel.summary,
            "file": kernel.file.name,
            "devices": list(kernel.devices),
            "dtypes": list(kernel.dtypes),
            "directions": list(kernel.directions),
            "modules": list(kernel.modules),
        }
        for kernel in kernels()
    ]


def _gpus() -> list[Row]:
    from andrea_bench.hardware import gpus

    return [_gpu(gpu) for gpu in gpus().values()]


def _gpu(gpu: "Gpu") -> Row:
    document: Row = msgspec.to_builtins(gpu)
    document["architecture"] = gpu.architecture.name
    return document


def _models() -> list[Row]:
    from andrea_bench.models import presets

    return [{"name": name} | msgspec.to_builtins(model) for name, model in presets().items()]


def _number(field: str) -> Callable[[Row], str | None]:
    """Reads a number of a GPU; one that is unsure carries a question mark."""

    def read(row: Row) -> str | None:
        value = row[field]
        return None if value is None else f"{value:g}{'?' if field in row['unsure'] else ''}"

    return read


def _field(field: str) -> Callable[[Row], Any]:
    return lambda row: row.get(field)


def _heads(row: Row) -> str:
    shared = row["n_kv_head"] != row["n_head"]
    return f"{row['n_head']}:{row['n_kv_head']}" if shared else str(row["n_head"])


_KINDS: dict[str, tuple[Callable[[], list[Row]], dict[str, Callable[[Row], Any]]]] = {
    "suites": (
        _suites,
        {
            "suite": _field("name"),
            "question": _field("question"),
            "kernels": lambda row: ", ".join(member["kernel"] for member in row["kernels"]),
            "baseline": _field("baseline"),
        },
    ),
    "kernels": (
        _kernels,
        {
            "op": _field("op"),
            "kernel": _field("kernel"),
            "what it does": _field("summary"),
            "devices": lambda row: ", ".join(row["devices"]),
            "needs": lambda row: ", ".join(row["modules"]),
        },
    ),
    "gpus": (
        _gpus,
        {
            "gpu": _field("name"),
            "cc": _field("compute_capability"),
            "SMs": _number("sm_count"),
            "TFLOP/s": _number("fp16_fp32acc_dense_tflops"),
            "GB/s": _number("memory_bandwidth_gb_per_s"),
            "GB": _number("memory_gb"),
            "L2 MiB": _number("l2_mib"),
        },
    ),
    "models": (
        _models,
        {
            "model": _field("name"),
            "d_model": _field("d_model"),
            "n_head": _heads,
            "head_dim": _field("head_dim"),
            "n_layer": _field("n_layer"),
        },
    ),
}

_CAPTIONS = {
    "models": "n_head 32:8 is 32 query heads over 8 key-value heads. `params --model NAME` counts one's parameters.",
    "gpus": "TFLOP/s: dense float16 peak with float32 accumulation. ?: the sources don't agree, or it was "
    "only recalled (--json says why, and gives every number's source).",
}


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _print_table(what: str, rows: list[dict[str, str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        console().print(f"no {what}")
        return
    table = Table(caption=_CAPTIONS.get(what), caption_justify="left")
    for title in rows[0]:
        numeric = all(row[title][:1].isdigit() or row[title] == "-" for row in rows)
        whole = numeric or title == next(iter(rows[0]))
        table.add_column(title, justify="right" if numeric else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*(Text(text) for text in row.values()))
    console().print(table)
