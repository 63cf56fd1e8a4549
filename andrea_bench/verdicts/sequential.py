"""When a trial of growing length may be looked at, and what each look may spend.

The rule. Looks are planned by the number of pairs alone: the first as soon as the pairs are enough for any
decision, each further one at 1.4 times as many, the last when the time budget is spent. Every look but the last
spends a third of the error probability that is left (of 5 %: 1.67 %, 1.11 %, 0.74 %, ...), the last all of it.
Within a look the cells share its level by Holm's procedure. A cell that is settled at a look keeps that
verdict.

Why the false alarms stay below 5 %: a false alarm of the trial is one at some look; by Bonferroni's inequality
its probability is at most the sum of the looks' levels, which is 5 %, whatever the dependence between looks.
(Sequential testing by alpha spending: Lan and DeMets 1983; Bonferroni's bound as its simplest, conservative
form: Wassmer and Brannath 2016, Group Sequential and Confirmatory Adaptive Designs in Clinical Trials, ch. 1.)
That a cell whose medians are slower is not settled as `same` (judge.py) can only make `same` rarer.
Neither the levels nor, but for the last one's, the times of looks depend on the ratios seen. The last falls on
the clock: of a slower side fewer pairs fit into the budget; but it never comes sooner for what was seen at the
looks before it. The rank intervals at each look are
exact for few pairs, where the normal approximations of tighter boundaries are not.
"""

import math

import msgspec

from andrea_bench.record import Record
from andrea_bench.statistics import least_units
from andrea_bench.store import StoredRun
from andrea_bench.verdicts.document import CellVerdict, Document, Look
from andrea_bench.verdicts.judge import judge
from andrea_bench.verdicts.policy import PAIRED_QUANTILE, Policy

SETTLED = ("same", "faster", "slower")
SHARE = 1 / 3  # of what is left, for every look but the last
GROWTH = 1.4  # pairs of the next look over those of this one


class Looks:
    """The looks of one trial. level: error probability of the whole trial. cells: size of the family."""

    def __init__(self, level: float, cells: int) -> None:
        self._left = level
        self.next_pairs = least_units(1 - SHARE * level / max(1, cells), paired=True)

    def take(self, *, last: bool) -> float:
        """The level of the look that is due; plans the next."""
        spent = self._left if last else SHARE * self._left
        self._left -= spent
        self.next_pairs = math.ceil(GROWTH * self.next_pairs)
        return spent


class Trial:
    """Two sides measured pair by pair, looked at by the rule above until every cell is settled.

    base, head: what is known of the two sides. cells: how many cells both sides have."""

    def __init__(self, base: StoredRun, head: StoredRun, policy: Policy, cells: int) -> None:
        self._base, self._head = base, head
        self._policy = msgspec.structs.replace(policy, paired=True, quantile=PAIRED_QUANTILE)
        self._looks = Looks(1 - policy.confidence, cells)
        self._taken: list[Look] = []
        self.settled: dict[str, CellVerdict] = {}

    def due(self, pairs: int) -> bool:
        """Whether so many pairs are enough for the next look."""
        return pairs >= self._looks.next_pairs

    def look(self, base: list[Record], head: list[Record], pairs: int, *, last: bool) -> Document:
        """The verdict after so many pairs. Blocks with the same number are pairs."""
        level = self._looks.take(last=last)
        self._base.records, self._head.records = base, head
        document = judge(self._base, self._head, self._policy, level=level, settled=self.settled)
        now = {cell.cell_id: cell for cell in document.cells if cell.verdict in SETTLED}
        self._taken.append(Look(pairs=pairs, level=level, settled=sorted(now.keys() - self.settled.keys())))
        self.settled |= now
        document.looks = list(self._taken)
        return document
