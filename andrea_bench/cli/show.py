"""`show`: the tables and answers of stored Runs."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from andrea_bench.cli.options import json_option
from andrea_bench.errors import BadInput

if TYPE_CHECKING:
    from andrea_bench.report.answers import Sentence
    from andrea_bench.report.rows import GroupRows
    from andrea_bench.store import StoredRun


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("--all", "every", is_flag=True, help="Every group of a very large Run, instead of an overview.")
@json_option
def show_command(runs: tuple[Path, ...], every: bool, as_json: bool) -> None:
    """Show stored Runs again, one after the other: tables, reasons, answers, machine; of a very large one an
    overview, and so of the Parquet file that `report` made of Runs. --json of several is a list."""
    from andrea_bench.cli.console import console, print_json
    from andrea_bench.report.terminal import one_line

    if as_json:
        documents = [_document(run, every) for run in runs]
        print_json(documents if len(runs) > 1 else documents[0])
        return
    for at, run in enumerate(runs):
        if len(runs) > 1:
            console().print(*([""] if at else []), one_line(str(run), "bold underline"), sep="\n")
        _show(run, every)


def _is_copy(run: Path) -> bool:
    return run.suffix == ".parquet" and run.is_file()


def _document(run: Path, every: bool) -> dict[str, Any]:
    """What --json says of one."""
    if _is_copy(run):
        from andrea_bench.report.overview import overview, parquet_cells

        _refuse_all(run, every)
        return {"file": str(run), "overview": overview(parquet_cells(run)[0]).to_dicts()}
    stored, _, said = _read(run)
    return {"run": str(stored.folder), "head": stored.head, "records": stored.records, "answers": said}


def _show(run: Path, every: bool) -> None:
    """One Run, or copy, on the terminal."""
    from andrea_bench.cli.console import console
    from andrea_bench.report.terminal import measured_on, print_conditions, print_run, tally
    from andrea_bench.store import run_folder

    if _is_copy(run):
        _refuse_all(run, every)
        _show_copy(run)
        return
    if not every and importlib.util.find_spec("polars"):
        from andrea_bench.report.overview import is_large

        if is_large(run_folder(run)):
            _show_large(run_folder(run))
            return
    stored, groups, said = _read(run)
    out, counts = console(), tally(groups)
    print_run(out, groups, said)
    print_conditions(out, counts, stored.head.started_at, measured_on(stored.head, counts.devices))


def _read(run: Path) -> "tuple[StoredRun, list[GroupRows], list[Sentence]]":
    """A Run with its rows and answers. Raises BadInput for what can't be read."""
    from andrea_bench.report.answers import answers
    from andrea_bench.report.rows import group_rows
    from andrea_bench.store import read_whole_run

    stored = read_whole_run(run)
    _note_incomplete(stored.folder, stored.head.complete)
    groups = group_rows(stored.records)
    return stored, groups, answers(groups, stored.head.environment)


def _note_incomplete(folder: Path, complete: bool) -> None:
    from andrea_bench.cli.console import note

    if not complete:
        note(f"this Run is not complete; continue it with: sweep --resume {folder}")


def _show_large(folder: Path) -> None:
    """The overview of more cells than anybody reads one by one."""
    from andrea_bench.cli.console import console
    from andrea_bench.report.overview import overview, print_overview, run_cells, tally_cells
    from andrea_bench.report.terminal import measured_on, print_conditions
    from andrea_bench.store import read_head

    head = read_head(folder)
    _note_incomplete(folder, head.complete)
    cells = run_cells(folder)
    out, counts = console(), tally_cells(cells)
    print_overview(out, overview(cells))
    print_conditions(out, counts, head.started_at, measured_on(head, counts.devices))
    out.print("--all shows each group.")


def _refuse_all(file: Path, every: bool) -> None:
    if every:
        raise BadInput(f"{file}: holds no samples; --all needs the Run itself")


def _show_copy(file: Path) -> None:
    """The overview of cells that have left their samples behind."""
    from andrea_bench.cli.console import console
    from andrea_bench.report.overview import overview, parquet_cells, print_overview, tally_cells
    from andrea_bench.report.terminal import print_conditions

    cells, since, origin = parquet_cells(file)
    out, counts = console(), tally_cells(cells)
    print_overview(out, overview(cells))
    print_conditions(out, counts, since, origin)
