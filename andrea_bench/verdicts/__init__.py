"""Verdicts on two Runs: joined on the cell, judged by rank intervals over processes, concluded in one exit code."""

from andrea_bench.verdicts.document import CellName, CellVerdict, Difference, Document, Verdict
from andrea_bench.verdicts.judge import judge
from andrea_bench.verdicts.policy import Policy, parse_percent

__all__ = ["CellName", "CellVerdict", "Difference", "Document", "Policy", "Verdict", "judge", "parse_percent"]
