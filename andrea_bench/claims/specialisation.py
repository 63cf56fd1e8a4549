"""The statement about heads in training, judged by a stored training result."""

import json
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from andrea_bench.claims.finding import Claim, Evidence, Outcome, claim
from andrea_bench.errors import BadInput

LEAST_SEEDS = 5
# The tasks that patterns are for must be learned this well in every seed, else nothing can be said.
LEAST_ACCURACY = 0.90
NEEDED = ("matching bracket", "most recent name")
# A pattern has emerged where the best head's attention grew by more than this, surely.
LEAST_GROWTH = 0.10
# 97.5 % points of Student's t for n - 1 degrees of freedom, n = 5 to 10 (standard tables).
STUDENT_T = {5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
NEEDS = "a training: `andrea-bench claims --train` (up to 40 minutes on two cores)"
SCHEMA_VERSION = 1


def head_specialisation(stored: Path | None) -> Claim:
    """The finding of a stored result; without one `not_testable_here`. Raises BadInput for what is none."""
    evidence = judge(read_training(stored)) if stored is not None else []
    depends = "which half of the statement, and which pattern: see each line"
    return claim("head-specialisation", evidence, depends_on=depends, needs=NEEDS)


def read_training(path: Path) -> dict[str, Any]:
    """A result that `claims --train` wrote."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = found["schema_version"]
        found["seeds"][0]["accuracy"], found["seeds"][0]["correlation"]
    except OSError as error:
        raise BadInput(f"{path}: can't be read: {error.strerror}") from None
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise BadInput(f"{path}: is no training result: {type(error).__name__}: {error}") from None
    if version > SCHEMA_VERSION:
        raise BadInput(f"{path}: has schema version {version}; this program reads up to {SCHEMA_VERSION}")
    return found


def judge(result: dict[str, Any]) -> list[Evidence]:
    """Evidence for both halves of the statement: gradients, and each pattern."""
    seeds = result["seeds"]
    settings = result["settings"]
    on = (
        f"{settings['n_layer']} layers of {settings['n_head']} x {settings['head_dim']}, {settings['steps']} steps, "
        f"{len(seeds)} seeds, trained {result['trained_at']}"
    )
    worst = {name: min(one["accuracy"][name] for one in seeds) for name in NEEDED}
    learned = all(value >= LEAST_ACCURACY for value in worst.values())
    words = ", ".join(f"{name} {value:.1%}" for name, value in worst.items())
    if len(seeds) < LEAST_SEEDS or not learned:
        text = f"{len(seeds)} seeds (needed: {LEAST_SEEDS}); least accuracy {words} (needed: {LEAST_ACCURACY:.0%})"
        return [Evidence(on=on, how="measured", finding="not_testable_here", text=text, numbers={"accuracy": worst})]
    values = [one["correlation"] for one in seeds]
    middle, low, high = interval(values)
    outcome: Outcome = "holds" if high < 0 else "fails"
    meaning = "smaller gradients" if high < 0 else "larger gradients" if low > 0 else "no difference that is sure"
    evidence = [
        Evidence(
            on=on,
            how="measured",
            finding=outcome,
            text=f"redundant heads get {meaning}: correlation {middle:.2f} ({low:.2f} to {high:.2f} over seeds); "
            f"tasks learned: {words} at least",
            numbers={"correlation": middle, "low": low, "high": high, "by_seed": values, "accuracy": worst},
        )
    ]
    return evidence + [_pattern(name, seeds, on) for name in seeds[0]["attention_trained"]]


def _pattern(name: str, seeds: Sequence[dict[str, Any]], on: str) -> Evidence:
    def best(key: str) -> list[float]:
        return [max(mass for layer in one[key][name] for mass in layer) for one in seeds]

    before, after = best("attention_untrained"), best("attention_trained")
    middle, low, high = interval([b - a for a, b in zip(before, after, strict=True)])
    return Evidence(
        on=on,
        how="measured",
        finding="holds" if low > LEAST_GROWTH else "fails",
        text=f"{name}: the best head's attention to it went from {fmean(before):.2f} to {fmean(after):.2f}, by "
        f"{middle:.2f} ({low:.2f} to {high:.2f} over seeds)",
        numbers={
            "untrained": before,
            "untrained_mean": fmean(before),
            "trained": after,
            "trained_mean": fmean(after),
            "growth": middle,
            "low": low,
            "high": high,
        },
    )


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean of the seeds with its 95 % interval (Student's t)."""
    t = STUDENT_T.get(len(values), STUDENT_T[max(STUDENT_T)] if len(values) > max(STUDENT_T) else STUDENT_T[5])
    half = t * stdev(values) / sqrt(len(values))
    middle = fmean(values)
    return middle, middle - half, middle + half
