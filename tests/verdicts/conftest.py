"""Fixtures of the verdicts' tests."""

from verdict_runs import write_run

__all__ = ["write_run"]
