"""`compare`: two Runs side by side; a report, not a gate."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from andrea_bench.cli.gate import check_output, judge_paths, output_options, policy_options, present
from andrea_bench.verdicts.policy import Policy

if TYPE_CHECKING:
    from andrea_bench.verdicts import Document


@click.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@policy_options
@output_options
def compare_command(a: Path, b: Path, policy: Policy, output: dict[str, Any]) -> int:
    """Compare Run B with Run A: ratio, interval, verdict and reason of each cell.

    The cells are judged as a report (at most 5 % of the verdicts `slower` are false); the exit code that gate
    would give is reported, and compare itself ends with 0.
    """
    check_output(output)
    present(compare_paths(a, b, policy), **output)
    return 0


def compare_paths(a: Path, b: Path, policy: Policy) -> "Document":
    """The report on two Runs: each verdict as a report's, the exit code as gate's, and a warning where they part."""
    gated = judge_paths(a, b, policy)
    document = judge_paths(a, b, msgspec.structs.replace(policy, family="benjamini_hochberg"))
    document.exit_code = gated.exit_code
    if document.verdict != gated.verdict:
        document.warnings.append(f"gate would say {gated.verdict}: {gated.reason}")
    return document
