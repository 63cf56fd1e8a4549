"""`history`: a benchmark's series over commits, from asv's results."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from andrea_bench.cli.options import json_option

if TYPE_CHECKING:
    from andrea_bench.tracking.series import History, Series

MOST_ROWS = 60


@click.command()
@click.argument("benchmark", required=False)
@click.option("--results", type=click.Path(path_type=Path), default=Path(".asv/results"), show_default=True,
              metavar="DIR", help="asv's results.")  # fmt: skip
@click.option("--machine", help="Which machine's, where there are several.")
@click.option("--environment", help="Which environment's, where there are several.")
@click.option("--changed", is_flag=True, help="Only series whose level changed, or that lie above their best.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Also as a page to open in a browser; it needs no network.")  # fmt: skip
@json_option
def history_command(
    benchmark: str | None, results: Path, machine: str | None, environment: str | None, changed: bool,
    html: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Show how the benchmarks that BENCHMARK (a regular expression, as asv's -b) fits went over commits.

    Commits stand in the order of history. A change of level is what asv's step detection finds. "above its best"
    compares the latest value with the best level that the series ever had.
    """
    from andrea_bench.cli.console import note, print_json
    from andrea_bench.tracking.document import history_document
    from andrea_bench.tracking.series import read_history

    history = read_history(results, benchmark=benchmark, machine=machine, environment=environment)
    shown = [series for series in history.series if series.changed() or not changed]
    for text in history.notes:
        note(text)
    document = history_document(history, shown)
    if html is not None:
        from andrea_bench.files import write_whole
        from andrea_bench.report.content import Subject
        from andrea_bench.report.html import html as as_html
        from andrea_bench.report.pages.history import history as history_page

        page = history_page(Subject(runs=[], facts=None, command="", history=document))
        write_whole(html, as_html([page], f"history on {history.machine}").encode())
        note(f"wrote {html}")
    if as_json:
        print_json(document)
        return
    _print(history, shown)


def _print(history: "History", shown: "list[Series]") -> None:
    from rich.table import Table
    from rich.text import Text

    from andrea_bench.cli.console import console
    from andrea_bench.report.words import changed_by, tracked
    from andrea_bench.tracking.series import LEAST_STEP, sparkline

    out = console()
    first, last = history.commits[0][:8], history.commits[-1][:8]
    out.print(Text(f"{history.machine}, {history.environment}: {len(history.commits)} commits, {first} to {last}"))
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("benchmark", overflow="fold")
    table.add_column("history", no_wrap=True)
    table.add_column("latest", no_wrap=True, justify="right")
    table.add_column("changes", overflow="fold")
    for one in sorted(shown, key=lambda series: not series.changed())[:MOST_ROWS]:
        said = [f"{changed_by(step.old, step.new)} at {step.commit[:8]}" for step in one.steps]
        above = one.from_best() or 0.0
        if above >= LEAST_STEP:
            said.append(f"{100 * above:+.3g} % above its best")
        if state := one.state(history.commits):
            said.append(state)
        latest = tracked(one.latest(), one.unit)
        table.add_row(Text(one.label), Text(sparkline(one.values())), Text(latest), Text("; ".join(said)))
    out.print(table)
    if len(shown) > MOST_ROWS:
        out.print(Text(f"and {len(shown) - MOST_ROWS} series more: name a BENCHMARK, or use --json"))
