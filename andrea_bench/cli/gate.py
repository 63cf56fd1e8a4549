"""`gate`: two Runs, a verdict for each cell, and an exit code for CI."""

import functools
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from andrea_bench.cli.options import json_option
from andrea_bench.errors import BadInput
from andrea_bench.verdicts.policy import DIFFERENCES, METRICS, Policy, parse_percent

if TYPE_CHECKING:
    from andrea_bench.verdicts import Document

Command = Callable[..., Any]


def policy_options(function: Command) -> Command:
    """Adds the options that make a Policy; the function gets `policy`."""

    @click.option("--max-slowdown", default="5%", show_default=True, metavar="5%", help="The allowance.")
    @click.option("--allow-different", multiple=True, metavar="NAME",
                  help=f"Compare although they differ in: {', '.join(DIFFERENCES)}. Repeatable.")  # fmt: skip
    @click.option("--allow-missing", is_flag=True, help="Cells that head lacks, or a missing base, are no failure.")
    @click.option("--on-inconclusive", type=click.Choice(["report", "fail", "pass"]), default="report",
                  show_default=True, help="Exit 3, 1 or 0 where only undecided cells are left; invalid 3.")  # fmt: skip
    @click.option("--metric", default="time", show_default=True, metavar="NAME",
                  help=f"What is gated: {', '.join(METRICS)}.")  # fmt: skip
    @functools.wraps(function)
    def with_policy(
        *args: Any, max_slowdown: str, allow_different: tuple[str, ...], allow_missing: bool, on_inconclusive: Any,
        metric: str, **kwargs: Any,
    ) -> Any:  # fmt: skip
        names = [name.strip() for text in allow_different for name in text.split(",")]
        policy = Policy(
            max_slowdown=parse_percent(max_slowdown),
            allow_different=names,
            allow_missing=allow_missing,
            on_inconclusive=on_inconclusive,
            metric=metric,
        )
        return function(*args, policy=policy, **kwargs)

    return with_policy


def output_options(function: Command) -> Command:
    """Adds --markdown, --junit, --annotations and --json; the function gets them as `output`."""

    @click.option("--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Also as Markdown.")
    @click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Also as JUnit XML.")
    @click.option("--annotations", type=click.Choice(["auto", "github", "azure", "teamcity", "none"]), default="auto",
                  show_default=True, help="Lines for a CI system; auto: the one that runs this.")  # fmt: skip
    @json_option
    @functools.wraps(function)
    def with_output(
        *args: Any, markdown: Path | None, junit: Path | None, annotations: str, as_json: bool, **kwargs: Any
    ) -> Any:
        output = {"markdown": markdown, "junit": junit, "annotations": annotations, "as_json": as_json}
        return function(*args, output=output, **kwargs)

    return with_output


def check_output(output: dict[str, Any]) -> None:
    """Raises BadInput where a file that is asked for can't be written, or would be written twice."""
    from andrea_bench.files import check_file

    markdown, junit = output["markdown"], output["junit"]
    for file in (markdown, junit):
        check_file(file)
    if markdown and junit and markdown.resolve() == junit.resolve():
        raise BadInput(f"{junit}: is asked for as --markdown and as --junit; name two files")


@click.command()
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("head", type=click.Path(path_type=Path))
@policy_options
@output_options
def gate_command(base: Path, head: Path, policy: Policy, output: dict[str, Any]) -> int:
    """Fail if HEAD is slower than BASE by more than the allowance, beyond doubt.

    Exit codes: 0 good, 1 slower or broken, 2 bad input, 3 inconclusive or not comparable, 5 wrong results.
    """
    from andrea_bench.cli.console import decided

    check_output(output)
    document = judge_paths(base, head, policy)
    decided(document.exit_code)
    present(document, **output)
    return document.exit_code


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector: nothing that is read has cycles, and it would walk through millions of samples
    again and again, for a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@uncollected()
def judge_paths(base: Path, head: Path, policy: Policy) -> "Document":
    """The verdict on two stored Runs, or on two results of asv (.asv/results@REVISION). A missing base has its own
    message, and passes under --allow-missing."""
    from andrea_bench.store import read_whole_run
    from andrea_bench.tracking.folder import is_tracked, read_side, split_revision
    from andrea_bench.verdicts import Document, judge

    tracked = [is_tracked(side) for side in (base, head)]
    if all(tracked):
        from andrea_bench.tracking.verdict import judge_results

        if policy.metric != "time":
            raise BadInput(f"--metric {policy.metric}: is for Runs; asv's results have a unit of their own each")
        return judge_results(read_side(base), read_side(head), policy)
    if any(tracked) and all(split_revision(side)[0].exists() for side in (base, head)):
        run, other = (head, base) if tracked[0] else (base, head)
        raise BadInput(f"{other} holds asv's results, {run} does not: compare two of a kind")
    if not base.exists():
        if not policy.allow_missing:
            raise BadInput(
                f"{base}: there is no baseline; `sweep --out` makes one, --allow-missing lets a first run pass"
            )
        head_run = read_whole_run(head)
        return Document(
            verdict="same", exit_code=0, reason="no baseline, nothing was compared (--allow-missing)", policy=policy,
            warnings=[f"there is no baseline {base}; {head_run.folder} with {len(head_run.records)} cells can be one"],
        )  # fmt: skip
    base_run, head_run = read_whole_run(base), read_whole_run(head)
    document = judge(base_run, head_run, policy)
    document.warnings += noise_warnings(document, head_run.head.environment)
    return document


def noise_warnings(document: "Document", environment: dict[str, Any]) -> list[str]:
    """That the allowance can't be met, where this machine was calibrated and is too noisy for it, and the cells
    don't show that it could be met all the same."""
    from andrea_bench.calibration import read_calibration, too_tight
    from andrea_bench.measure.task import SAMPLING
    from andrea_bench.verdicts.policy import PAIRED_QUANTILE

    suites = {cell.suite for cell in document.cells if cell.verdict not in ("same", "faster")}
    try:
        return too_tight(
            read_calibration(), environment, suites,
            max_slowdown=document.policy.max_slowdown, quantile=PAIRED_QUANTILE, sampling=SAMPLING,
        )  # fmt: skip
    except BadInput as error:  # no reason to withhold a verdict
        return [str(error)]


def present(
    document: "Document", *, markdown: Path | None, junit: Path | None, annotations: str, as_json: bool
) -> None:
    """Write a Document in all the forms asked for, files last: should one fail, the verdict is known. Annotation lines
    go to stdout, or to stderr beside JSON."""
    from andrea_bench.cli.console import console, print_json
    from andrea_bench.files import write_whole
    from andrea_bench.verdicts.annotations import annotations as lines
    from andrea_bench.verdicts.annotations import system_here

    if as_json:
        print_json(document)
    else:
        from andrea_bench.verdicts.table import print_document

        print_document(console(), document)
    system = system_here(os.environ) if annotations == "auto" else annotations
    if system and system != "none":
        for line in lines(document, system):
            print(line, file=sys.stderr if as_json else sys.stdout)
    if markdown:
        from andrea_bench.verdicts.markdown import markdown as as_markdown

        write_whole(markdown, as_markdown(document).encode("utf-8", "replace"))
    if junit:
        from andrea_bench.verdicts.junit import junit as as_junit

        write_whole(junit, as_junit(document))
