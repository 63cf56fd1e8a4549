"""Trials replayed on stored noise: how often the rule of `sequential` cries wolf, and how often it sleeps.

Each pair of a replayed trial is drawn from pairs of processes of the same code that were seen, all of its cells
from one pair (a disturbed process is disturbed in all), with a random sign (which of the two was called base was
chance).
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from andrea_bench.problem import Problem
from andrea_bench.record import Record, RunHead
from andrea_bench.store import StoredRun
from andrea_bench.verdicts.document import Verdict
from andrea_bench.verdicts.policy import Policy
from andrea_bench.verdicts.sequential import Trial

PROBLEM = Problem(seq_len=1, n_head=1, head_dim=1)
BASE_US = 1000.0  # of every replayed cell: far above the clock's floor


def replay(
    noise: Sequence[Sequence[float]],
    policy: Policy,
    *,
    gates: int,
    max_pairs: int,
    slowdown: float = 0.0,
    seed: int = 0,
) -> Counter[Verdict]:
    """Verdicts of `gates` replayed trials.

    noise: for each cell, log ratios of one pair each, in order of pair; a cell that lacks pairs is drawn from those
    it has. slowdown: true change of the first cell (0.05 is 5 %), the others don't change. max_pairs: as many as the
    budget lets be measured."""
    generator = random.Random(seed)
    found: Counter[Verdict] = Counter()
    most = max((len(cell) for cell in noise), default=0)
    shifts = [math.log1p(slowdown if i == 0 else 0.0) for i in range(len(noise))]
    for _ in range(gates):
        drawn = [(generator.randrange(most), generator.choice((-1, 1))) for _ in range(max_pairs)]
        logs = [
            [shift + sign * cell[pair % len(cell)] for pair, sign in drawn]
            for cell, shift in zip(noise, shifts, strict=True)
        ]
        found[_verdict(logs, policy, max_pairs)] += 1
    return found


def log_ratios(base_us: Sequence[float], head_us: Sequence[float]) -> list[float]:
    """The log ratio of each pair of process medians."""
    return [math.log(head / base) for base, head in zip(base_us, head_us, strict=True)]


def _verdict(logs: list[list[float]], policy: Policy, max_pairs: int) -> Verdict:
    """The outcome of one trial whose cells have these log ratios, pair by pair."""
    head = RunHead(complete=True, started_at="")
    trial = Trial(StoredRun(Path("base"), head, []), StoredRun(Path("head"), head, []), policy, len(logs))
    pairs = 0
    while True:
        pairs += 1
        last = pairs == max_pairs
        if not (last or trial.due(pairs)):
            continue
        before = [_record(i, [BASE_US] * pairs) for i in range(len(logs))]
        after = [_record(i, [BASE_US * math.exp(x) for x in cell[:pairs]]) for i, cell in enumerate(logs)]
        document = trial.look(before, after, pairs, last=last)
        if last or len(trial.settled) == len(logs):
            return document.verdict


def _record(cell: int, samples_us: list[float]) -> Record:
    return Record(
        cell_id=str(cell), suite="replay", op="attention", kernel=f"cell {cell}", problem=PROBLEM, device="cpu",
        status="ok", samples_us=samples_us, order=[], block=list(range(len(samples_us))), round=[0] * len(samples_us),
        timing_mode="host_wall", cache="warm", flops=0, min_bytes=0, started_at="",
    )  # fmt: skip
