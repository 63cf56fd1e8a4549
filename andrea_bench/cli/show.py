"""`show`: the tables and answers of a stored Run."""

import importlib.util
from pathlib import Path

import click

from andrea_bench.cli.options import json_option
from andrea_bench.errors import BadInput


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--all", "every", is_flag=True, help="Every group of a very large Run, instead of an overview.")
@json_option
def show_command(run: Path, every: bool, as_json: bool) -> None:
    """Show a stored Run again: tables, reasons, answers; of a very large one an overview, and so of the Parquet file
    that `report` made of Runs."""
    from andrea_bench.cli.console import console, note, print_json
    from andrea_bench.report.answers import answers
    from andrea_bench.report.rows import group_rows
    from andrea_bench.store import read_head, read_run, run_folder

    if run.suffix == ".parquet" and run.is_file():
        _show_parquet(run, every, as_json)
        return
    folder = run_folder(run)
    if not every and not as_json and importlib.util.find_spec("polars"):
        from andrea_bench.report.overview import is_large, print_overview, run_overview

        if is_large(folder):
            read_head(folder)
            print_overview(console(), run_overview(folder))
            console().print("--all shows each group.")
            return
    stored = read_run(run)
    if stored.head.complete and not stored.records:
        raise BadInput(f"{folder}: run.json calls the Run complete, but records.jsonl holds no records")
    groups = group_rows(stored.records)
    said = answers(groups)
    if not stored.head.complete:
        note(f"this Run is not complete; continue it with: sweep --resume {stored.folder}")
    if as_json:
        print_json({"run": str(stored.folder), "head": stored.head, "records": stored.records, "answers": said})
        return
    from andrea_bench.report.terminal import count_line, print_run

    out = console()
    print_run(out, groups, said)
    out.print(f"{count_line(groups)}, measured from {stored.head.started_at}", markup=False)


def _show_parquet(file: Path, every: bool, as_json: bool) -> None:
    """The overview of cells that have left their samples behind."""
    from andrea_bench.cli.console import console, print_json
    from andrea_bench.report.overview import parquet_overview, print_overview

    if every:
        raise BadInput(f"{file}: holds no samples; --all needs the Run itself")
    frame = parquet_overview(file)
    if as_json:
        print_json({"file": str(file), "overview": frame.to_dicts()})
    else:
        print_overview(console(), frame)
