"""`report`: Runs and Facts as files that people look at."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from andrea_bench.cli.options import json_option
from andrea_bench.errors import BadInput

if TYPE_CHECKING:
    from andrea_bench.report.content import CompiledFacts

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@click.option("--facts", type=FILE, help="Facts that `inspect --save` wrote.")
@click.option("--html", type=FILE, help="One file to open in a browser; it needs no network.")
@json_option
@click.pass_context
def report_command(context: click.Context, runs: tuple[Path, ...], facts: Path | None, html: Path | None,
                   as_json: bool) -> None:  # fmt: skip
    """Write what stored Runs (and Facts) say, as HTML."""
    import shlex

    from andrea_bench.cli.console import note, print_json
    from andrea_bench.report.content import Subject
    from andrea_bench.report.html import html as as_html
    from andrea_bench.report.pages import pages
    from andrea_bench.report.subject import read_runs
    from andrea_bench.store import write_whole

    if not runs and not facts:
        raise BadInput("report: nothing to report on: name a Run, or Facts with --facts FILE")
    if not html:
        raise BadInput("report: say what to write: --html FILE")
    typed = (context.find_root().obj or {}).get("arguments", [])
    subject = Subject(read_runs(runs), _compiled(facts), shlex.join(["andrea-bench", *typed]))
    made = pages(subject)
    subtitle = "; ".join([run.label for run in subject.runs] or [f"compiled kernels, {facts.name if facts else ''}"])
    written = [html]
    write_whole(html, as_html(made, subtitle).encode("utf-8", "replace"))
    left_out = {page.name: page.absent for page in made if page.absent}
    if as_json:
        print_json({"written": [str(file) for file in written], "left_out": left_out})
        return
    for file in written:
        note(f"wrote {file}")


def _compiled(path: Path | None) -> "CompiledFacts | None":
    """The Facts file with the tables that `inspect` makes of it."""
    if path is None:
        return None
    from andrea_bench.inspect.document import read_facts
    from andrea_bench.inspect.summary import CAPTION, refusals, tables
    from andrea_bench.report.content import CompiledFacts, Table

    read = read_facts(path)
    shown = [
        Table(t.title, t.columns, t.rows, frozenset(t.columns) - {"matrix", "bound"}, True) for t in tables(read.facts)
    ]
    return CompiledFacts(read.compilers, [f.document() for f in read.facts], CAPTION, shown, refusals(read.facts))
