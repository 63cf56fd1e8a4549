"""`report`: Runs and Facts as files that people look at, or that other tools read."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from andrea_bench.cli.options import json_option
from andrea_bench.errors import BadInput

if TYPE_CHECKING:
    from andrea_bench.record import RunHead
    from andrea_bench.report.content import Ceiling, Comparison, CompiledFacts, Page

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@click.option("--facts", type=FILE, metavar="FILE", help="Facts that `inspect --save` wrote.")
@click.option("--claims", type=FILE, metavar="FILE", help="Claims that `claims --json` wrote.")
@click.option("--history", type=click.Path(path_type=Path), metavar="DIR", help="Results of asv, for a page of them.")
@click.option("--html", type=FILE, metavar="FILE", help="One file to open in a browser; it needs no network.")
@click.option("--markdown", type=FILE, metavar="FILE", help="For a pull request: under 60,000 characters.")
@click.option("--svg", type=FOLDER, metavar="DIR", help="The charts as SVG and PNG; --markdown then shows them.")
@click.option("--csv", type=FILE, metavar="FILE", help="All cells without raw samples.")
@click.option("--parquet", type=FILE, metavar="FILE", help="The same as Parquet.")
@json_option
@click.pass_context
def report_command(
    context: click.Context,
    runs: tuple[Path, ...],
    facts: Path | None,
    claims: Path | None,
    history: Path | None,
    as_json: bool,
    **given: Path | None,
) -> None:
    """Write what stored Runs (and Facts) say, as HTML, Markdown, pictures or tables.

    Of several Runs each is compared with the first, as `compare` does.
    """
    from andrea_bench.cli.console import note, print_json

    outputs = {name: path for name, path in given.items() if path is not None}
    if not runs and not facts and not claims and not history:
        raise BadInput("report: nothing to report on: name a Run, or Facts with --facts FILE")
    if not outputs:
        raise BadInput("report: say what to write: --html, --markdown, --svg, --csv or --parquet")
    written: list[str] = []
    pages: list[Page] = []
    if outputs.keys() & {"html", "markdown", "svg"}:
        import shlex

        typed = (context.find_root().obj or {}).get("arguments", [])
        pages, subtitle = _pages(runs, facts, claims, history, shlex.join(["andrea-bench", *typed]))
        written += _write_pages(pages, subtitle, outputs)
    written += _write_cells(runs, outputs)
    if as_json:
        print_json({"written": written, "left_out": {page.name: page.absent for page in pages if page.absent}})
        return
    for file in written:
        note(f"wrote {file}")


def _pages(
    runs: tuple[Path, ...], facts: Path | None, claims: Path | None, history: Path | None, command: str
) -> "tuple[list[Page], str]":
    """The pages, and whose they are."""
    from andrea_bench.report.content import Subject
    from andrea_bench.report.pages import pages
    from andrea_bench.report.subject import read_claims, read_runs

    measured = read_runs(runs, _measured_ceiling)
    labels = [run.label for run in measured]
    compared = [_compared(runs[0], labels[0], run, label) for run, label in zip(runs[1:], labels[1:], strict=True)]
    put_to_test, tracked = read_claims(claims) if claims else None, _tracked(history)
    subject = Subject(measured, _compiled(facts), command, put_to_test, compared, tracked)
    of = [run.label for run in subject.runs] + ([f"compiled kernels ({facts.name})"] if facts else [])
    of += [f"claims ({claims.name})"] if claims else []
    of += [f"history on {tracked['machine']}"] if tracked else []
    return pages(subject), "; ".join(of)


def _write_pages(pages: "list[Page]", subtitle: str, outputs: dict[str, Path]) -> Iterator[str]:
    import os

    from andrea_bench.files import write_whole
    from andrea_bench.report.html import html
    from andrea_bench.report.markdown import markdown
    from andrea_bench.report.pictures import write_pictures

    pictures: dict[str, Path] = {}
    if folder := outputs.get("svg"):
        pictures = write_pictures(pages, folder)
        yield f"{folder} ({len(pictures)} charts)"
    if file := outputs.get("markdown"):
        beside = {name: Path(os.path.relpath(path, file.parent)).as_posix() for name, path in pictures.items()}
        write_whole(file, markdown(pages, subtitle, beside).encode("utf-8", "replace"))
        yield str(file)
    if file := outputs.get("html"):
        write_whole(file, html(pages, subtitle).encode("utf-8", "replace"))
        yield str(file)


def _write_cells(runs: tuple[Path, ...], outputs: dict[str, Path]) -> Iterator[str]:
    wanted: dict[str, Path] = {name: outputs[name] for name in ("csv", "parquet") if name in outputs}
    if not wanted:
        return
    if not runs:
        raise BadInput("report: --csv and --parquet write the cells of Runs: name one")
    from andrea_bench.files import write_whole
    from andrea_bench.report import cells

    as_bytes: dict[str, Any] = {"csv": cells.csv, "parquet": cells.parquet}
    for name, file in wanted.items():
        write_whole(file, as_bytes[name](runs))
        yield str(file)


def _compared(base: Path, base_label: str, head: Path, head_label: str) -> "Comparison":
    """What `compare` says of the two, by its own rules; why, where they can't be compared at all."""
    from andrea_bench.cli.compare import compare_paths
    from andrea_bench.report.content import ComparedCell, Comparison
    from andrea_bench.verdicts import Policy
    from andrea_bench.verdicts.wording import cell_name, has_interval, ratio_text, remarks, rows

    try:
        document = compare_paths(base, head, Policy())
    except BadInput as error:
        return Comparison(base_label, head_label, f"not compared: {error}")
    cells = []
    for cell in rows(document):
        low, high = (cell.low, cell.high) if has_interval(cell) else (None, None)
        reason = "; cause? ".join([cell.reason, *cell.likely_causes])
        verdict = cell.verdict.replace("_", " ")
        n = (cell.blocks_base, cell.blocks_head)
        name, shown = cell_name(cell), ratio_text(cell)
        cells.append(ComparedCell(cell.cell_id, name, verdict, reason, shown, n, cell.ratio, low, high))
    headline = f"{document.verdict.replace('_', ' ')}: {document.reason}"
    return Comparison(base_label, head_label, headline, list(remarks(document)), cells)


def _measured_ceiling(head: "RunHead") -> "Ceiling | None":
    """What `calibrate` found, where it was on this Run's machine, device and number of threads."""
    from andrea_bench.calibration import read_calibration
    from andrea_bench.environment import differences
    from andrea_bench.report.content import Ceiling

    found = read_calibration()
    if found is None or found.ceilings.threads != head.protocol.get("threads"):
        return None
    if found.device != head.environment.get("device") or differences(found.environment, head.environment):
        return None
    source = f"calibrate on {found.measured_at[:10]}"
    return Ceiling(source, found.ceilings.matmul_tflops, found.ceilings.copy_gb_per_s)


def _tracked(folder: Path | None) -> dict[str, Any] | None:
    """What `history --json` says of asv's results."""
    if folder is None:
        return None
    from andrea_bench.tracking.document import history_document
    from andrea_bench.tracking.series import read_history

    found = read_history(folder)
    return history_document(found, list(found.series))


def _compiled(path: Path | None) -> "CompiledFacts | None":
    """The Facts file with the tables that `inspect` makes of it."""
    if path is None:
        return None
    from andrea_bench.inspect.document import read_facts
    from andrea_bench.inspect.summary import CAPTION, refusals, tables
    from andrea_bench.report.content import CompiledFacts, Table

    read = read_facts(path)
    texts = {"matrix", "bound"}
    shown = [Table(t.title, t.columns, t.rows, frozenset(t.columns) - texts, True) for t in tables(read.facts)]
    return CompiledFacts(read.compilers, [f.document() for f in read.facts], CAPTION, shown, refusals(read.facts))
