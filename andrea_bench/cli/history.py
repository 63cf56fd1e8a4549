"""`history`: a benchmark's series over commits, from asv's results."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
@click.option("--changed", is_flag=True, help="Only series whose level changed.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Also as a page to open in a browser; it needs no network.")  # fmt: skip
@json_option
def history_command(
    benchmark: str | None, results: Path, machine: str | None, environment: str | None, changed: bool,
    html: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Show how the benchmarks that BENCHMARK (a regular expression, as asv's -b) fits went over commits.

    Commits stand in the order of history. A step is a change of level that asv's step detection finds.
    """
    from andrea_bench.cli.console import note, print_json
    from andrea_bench.tracking.series import read_history

    history = read_history(results, benchmark=benchmark, machine=machine, environment=environment)
    shown = [series for series in history.series if series.steps or not changed]
    for text in history.notes:
        note(text)
    if html is not None:
        from andrea_bench.report.html import html as as_html
        from andrea_bench.store import write_whole
        from andrea_bench.tracking.page import history_page

        page = history_page(history)
        write_whole(html, as_html([page], f"history on {history.machine}").encode())
        note(f"wrote {html}")
    if as_json:
        print_json(_document(history, shown))
        return
    _print(history, shown)


def _document(history: "History", shown: "list[Series]") -> dict[str, Any]:
    return {
        "machine": history.machine,
        "environment": history.environment,
        "commits": history.commits,
        "notes": history.notes,
        "series": [
            {
                "benchmark": one.label.partition("(")[0],
                "parameters": dict(next(p for p in one.points if p).parameters),
                "type": one.type,
                "unit": one.unit,
                "version": one.version,
                "status": [point.status if point else None for point in one.points],
                "values": one.values(),
                "steps": [{"commit": s.commit, "before": s.before, "old": s.old, "new": s.new} for s in one.steps],
            }
            for one in shown
        ],
    }


def _print(history: "History", shown: "list[Series]") -> None:
    from rich.table import Table
    from rich.text import Text

    from andrea_bench.cli.console import console
    from andrea_bench.tracking.series import sparkline
    from andrea_bench.tracking.words import change_text, value_text

    out = console()
    first, last = history.commits[0][:8], history.commits[-1][:8]
    out.print(Text(f"{history.machine}, {history.environment}: {len(history.commits)} commits, {first} to {last}"))
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("benchmark", overflow="fold")
    table.add_column("history", no_wrap=True)
    table.add_column("latest", no_wrap=True, justify="right")
    table.add_column("steps", overflow="fold")
    for one in sorted(shown, key=lambda series: not series.steps)[:MOST_ROWS]:
        said = [f"{change_text(step)} at {step.commit[:8]}" for step in one.steps]
        state = one.state(history.commits)
        steps = "; ".join([*said, *([state] if state else [])])
        latest = value_text(one.latest(), one)
        table.add_row(Text(one.label), Text(sparkline(one.values())), Text(latest), Text(steps))
    out.print(table)
    if len(shown) > MOST_ROWS:
        out.print(Text(f"and {len(shown) - MOST_ROWS} series more: name a BENCHMARK, or use --json"))
