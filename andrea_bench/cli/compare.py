"""`compare`: two Runs side by side; a report, not a gate."""

from pathlib import Path
from typing import Any

import click
import msgspec

from andrea_bench.cli.gate import judge_paths, output_options, policy_options, present
from andrea_bench.verdicts.policy import Policy


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
    gated = judge_paths(a, b, policy)
    document = judge_paths(a, b, msgspec.structs.replace(policy, family="benjamini_hochberg"))
    document.exit_code = gated.exit_code
    if document.verdict != gated.verdict:
        document.warnings.append(f"gate would say {gated.verdict}: {gated.reason}")
    present(document, **output)
    return 0
