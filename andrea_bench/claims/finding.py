"""Claim: one statement with its finding; Evidence: what was tried, on what, and what came out."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

Outcome = Literal["holds", "fails", "depends", "not_testable_here"]
How = Literal["exact", "measured", "compiled", "predicted", "published"]

STATEMENTS = {
    "fused-projection": "one fused matmul beats one per head, and reaches near peak throughput",
    "per-head-equivalence": "fused-then-reshape and per-head projections give the same Q_h, K_h, V_h",
    "parameter-count": "attention has 4*768^2 = 2,359,296 parameters a layer, 28.3 M in 12 layers, about a quarter "
    "of andrea-120m",
    "concat-inverts-split": "concatenating the heads restores d_model with nothing lost",
    "output-projection-mixes": "without W_O an output chunk depends on one head alone, with it on all heads",
    "head-specialisation": "redundant heads receive smaller gradients than unique ones; heads with positional, "
    "bracket-matching and most-recent-entity patterns emerge unlabelled",
    "many-heads-not-one": "at one width, several narrower heads cost no more time than fewer wider ones, and learn "
    "more",
    "contiguous-heads": "heads that lie contiguous are faster for Q_h K_h^T than the strided view",
    "one-kernel-many-heads": "one launch with one block per (batch, head) handles all heads in parallel",
    "tile-64": "head_dim 64 = 4 x 16 fits the tensor-core tile exactly",
    "tile-32": "head_dim 32 fits the tile too, but under-uses it",
    "tile-72": "head_dim 72 does not fit the tile, and forces fallback kernels",
    "five-steps": "three matmuls touch the input, one the concatenated heads, one kernel does attention",
}


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was tried. on: the device or GPU, dtype and size. finding: of the statement there.
    text: what came out, in words; numbers: what the words are made of. source: of published facts."""

    on: str
    how: How
    finding: Outcome
    text: str
    numbers: dict[str, Any] = {}
    source: str | None = None


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A statement and its finding. condition: on what it depends, or what a test of it would need; numbers: what
    its words are made of."""

    id: str
    statement: str
    finding: Outcome
    condition: str | None
    evidence: list[Evidence]
    numbers: dict[str, Any] = {}


def claim(
    name: str,
    evidence: Sequence[Evidence],
    *,
    depends_on: str,
    needs: str,
    statement: str | None = None,
    numbers: dict[str, Any] | None = None,
) -> Claim:
    """The finding that all evidence together gives: that of all where they agree, else `depends`.

    depends_on: the condition, where they don't agree. needs: what a test would need, where nothing was tested.
    What could not be tested counts for nothing beside what was. statement: where it is none of STATEMENTS.
    numbers: of the condition.
    """
    tested = {one.finding for one in evidence} - {"not_testable_here"}
    finding: Outcome = "not_testable_here" if not tested else "depends" if len(tested) > 1 else tested.pop()
    condition = {"depends": depends_on, "not_testable_here": needs}.get(finding)
    text = STATEMENTS[name] if statement is None else statement
    return Claim(
        id=name, statement=text, finding=finding, condition=condition, evidence=list(evidence), numbers=numbers or {}
    )
