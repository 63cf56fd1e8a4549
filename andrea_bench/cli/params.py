"""`params`: the parameters of a model by part, and how they lie to a published count."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from andrea_bench.axes import AxisRequest, expand
from andrea_bench.cli.options import axis_options, json_option
from andrea_bench.errors import BadInput
from andrea_bench.models import DEFAULT_MODEL, find_model

if TYPE_CHECKING:
    from andrea_bench.models import Model
    from andrea_bench.problem import Problem

Row = dict[str, Any]
PARTS = ("embeddings", "attention", "mlp", "norms", "output_head", "extras", "unique", "non_embedding", "stored")


@click.command("params")
@axis_options
@click.option("--expect", type=int, metavar="N", help="A count to compare with; exit code 1 where it differs.")
@json_option
def params_command(request: AxisRequest, config: Row, expect: int | None, as_json: bool) -> None:
    """Count a model's parameters by part: embeddings, attention, MLP, norms, output head."""
    from andrea_bench.cli.console import print_json

    model = find_model(request.model or DEFAULT_MODEL)
    expansion = expand(request)
    problems = expansion.problems
    if model.dtype and "dtype" not in request.axes:  # its file knows better than the device's default
        problems = [msgspec.structs.replace(problem, dtype=model.dtype) for problem in problems]
    rows = list({_key(row): row for row in (_row(model, problem) for problem in problems)}.values())
    if expect is not None:
        _add_expected(rows, expect)
    if as_json:
        invalid = [{"axes": axes, "reason": reason} for axes, reason in expansion.invalid]
        print_json({"models": rows, "invalid": invalid})
    else:
        _show(rows, expansion.invalid)
    if expect is not None and rows[0]["difference"] != 0:
        raise click.exceptions.Exit(1)


def _row(model: "Model", problem: "Problem") -> Row:
    """One model of the grid as `--json` has it; counts are parameters."""
    sized = model.resized(problem)
    counts = sized.parameters()
    return {
        "model": model.name,
        "d_model": problem.d_model,
        "n_head": problem.n_head,
        "n_kv_head": problem.n_kv_head,
        "head_dim": problem.head_dim,
        "n_layer": problem.n_layer,
        **msgspec.structs.asdict(counts),
        "non_embedding": counts.non_embedding,
        "tied": counts.tied,
        "attention_share": counts.attention_share,
        "alignment": problem.alignment(),
        "dtype": problem.dtype,
        "kv_cache_bytes_per_token": problem.kv_cache_bytes_per_token(),
        "assumed": sized.assumed,
        "extra_parts": sized.extras,
        "published_parameters": sized.published_parameters,
        "published_rounded": sized.published_rounded,
        "count_scope": sized.count_scope,
        "count_source": sized.count_source,
        "source": sized.source,
        "note": sized.note,
    }


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("d_model", "n_head", "n_kv_head", "head_dim", "n_layer", "dtype"))


def _add_expected(rows: list[Row], expect: int) -> None:
    if len(rows) > 1:
        raise BadInput(f"--expect compares one model; these axes make {len(rows)}")
    (row,) = rows
    if row["unique"] is None:
        raise BadInput(f"--expect: {row['model']} can't be counted whole: {row['reason']}")
    row["expected"], row["difference"] = expect, row["unique"] - expect


def _show(rows: list[Row], invalid: list[tuple[Row, str]]) -> None:
    from andrea_bench.cli.console import note

    if len(rows) == 1:
        _show_one(rows[0])
    else:
        _show_many(rows)
    for axes, reason in invalid:
        note(f"left out: {reason}  ({', '.join(f'{name}={value}' for name, value in axes.items())})")


def _show_one(row: Row) -> None:
    from rich.table import Table
    from rich.text import Text

    from andrea_bench.cli.console import console

    out = console()
    groups = "" if row["n_kv_head"] == row["n_head"] else f" (kv heads {row['n_kv_head']})"
    out.print(Text(f"{row['model']}: d_model {row['d_model']}, {row['n_head']} heads{groups} of {row['head_dim']}, "
                   f"{row['n_layer']} layers"))  # fmt: skip
    table = Table(box=None)
    table.add_column("part")
    table.add_column("parameters", justify="right")
    table.add_column("of unique", justify="right")
    table.add_row("attention, one layer", f"{row['attention_per_layer']:,}", "")
    for part in PARTS:
        count = row[part]
        share = f"{count / row['unique']:.1%}" if row["unique"] and part != "stored" and count is not None else ""
        table.add_row(part.replace("_", " "), "-" if count is None else f"{count:,}", share)
    out.print(table)
    for line in _lines(row):
        out.print(Text(line))


def _lines(row: Row) -> list[str]:
    lines = [
        f"KV cache: {row['kv_cache_bytes_per_token']:,} bytes per token ({row['dtype']}, all layers)",
        f"head_dim {row['head_dim']} in {row['dtype']}: {row['alignment']}",
    ]
    if row["reason"]:
        lines.append(f"not counted whole: {row['reason']}")
    if row["extra_parts"]:
        lines.append("extras: " + ", ".join(f"{name} {count:,}" for name, count in row["extra_parts"].items()))
    if row["stored"] != row["unique"]:
        lines.append(f"stored: with the tied output head ({row['tied']:,}) counted again, as some files hold it")
    if row["assumed"]:
        lines.append(f"assumed: {', '.join(row['assumed'])}")
    if row["published_parameters"] and row["unique"] is not None:
        difference = row["unique"] - row["published_parameters"]
        lines.append(f"published: {row['published_parameters']:,} ({row['count_scope']}); difference {difference:+,}")
    elif row["published_rounded"]:
        lines.append(f"published: {row['published_rounded']} ({row['count_scope']})")
    if "expected" in row:
        lines.append(f"expected: {row['expected']:,}; difference {row['difference']:+,}")
    return lines + ([f"note: {row['note']}"] if row["note"] else [])


def _show_many(rows: list[Row]) -> None:
    from rich.table import Table

    from andrea_bench.cli.console import console

    columns = {
        "d_model": "d_model", "n_head": "n_head", "n_kv_head": "n_kv_head", "head_dim": "head_dim",
        "n_layer": "n_layer", "attention_per_layer": "per layer", "unique": "unique",
    }  # fmt: skip
    table = Table(box=None)
    for title in (*columns.values(), "share"):
        table.add_column(title, justify="right")
    for row in rows:
        share = row["attention_share"]
        counts = [row[name] for name in columns]
        cells = ["-" if n is None else f"{n:,}" if n > 99_999 else str(n) for n in counts]
        table.add_row(*cells, "-" if share is None else f"{share:.1%}")
    console().print(table)
    console().print("per layer: attention parameters; share: attention's part of the unique parameters")
