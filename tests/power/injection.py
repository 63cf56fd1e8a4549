"""A repository of which one revision has a kernel that is slower by a known share, through extra work.

The extra work is a second, small matmul of the same operands. The depth at which it makes so much of the kernel's
time is found, and then checked on fresh pairs, by the paired processes with which `ab` itself measures.
"""

import math
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression

from andrea_bench.measure.pairs import Pairs
from andrea_bench.measure.session import Worker
from andrea_bench.measure.task import Task
from andrea_bench.measure.turns import BASE, HEAD
from andrea_bench.problem import Problem
from andrea_bench.protocol import Protocol
from andrea_bench.record import Record
from andrea_bench.revisions import Revision, open_revisions
from andrea_bench.statistics import least_units, paired_shift
from andrea_bench.verdicts.judge import paired_logs

ROOT = Path(__file__).parents[2]
# Eight cells of a quarter to one millisecond.
SUITE, OP, SLOWED = "projection", "qkv_projection", "fused_qkv"
KERNELS = ("per_head_loop", "per_head_batched", "fused_each", SLOWED)
SEQ_LENS, N_HEAD, HEAD_DIM = (64, 128), 4, 64

START = "start"  # the tag of the revision as it is
FILE = "kernels/andrea_kernels/torch_projection.py"
FAST = "    return Work(run=lambda: x @ w_qkv, canonical=lambda packed: packed_views(packed, problem))\n"
SLOW = """\
    import torch

    depth = {depths}[problem.seq_len]
    rows = x.detach().flatten()[: {rows} * depth].view({rows}, depth)
    columns = w_qkv.detach().flatten()[: {columns} * depth].view(depth, {columns})
    spare = rows @ columns
    return Work(
        run=lambda: (torch.mm(rows, columns, out=spare), x @ w_qkv)[1],
        canonical=lambda packed: packed_views(packed, problem),
    )
"""
# Of the extra matmul: its depth alone changes, since time grows by steps with columns (by the width of vectors). It
# changes in steps that keep rows aligned, or the time would jump about.
ROWS, COLUMNS, DEPTH_STEP = 8, 48, 8
TOLERANCE = 0.005  # above the aim: half a percentage point
SEARCH_PAIRS, SEARCHES = 8, 6
NEAR = 0.05  # a smaller change of depth than this share ends the search
CHECKS = 5

Report = Callable[[str], None]
Depths = dict[int, int]  # of the extra matmul, by seq_len


class NotReached(Exception):
    """The slowdown could not be made what it shall be."""


@dataclass(frozen=True)
class Injected:
    """The extra work in one cell, and the slowdown that fresh pairs of processes showed, with its 95 % interval."""

    seq_len: int
    depth: int
    slowdown: float
    low: float
    high: float
    pairs: int

    def holds(self, aim: float) -> bool:
        """Whether it is shown to be no easier to find than the aim, to within the tolerance, and more than half of it.
        Few pairs give no interval of 95 %, and show nothing."""
        enough = self.pairs >= least_units(0.95, paired=True)
        return enough and aim / 2 < self.low and self.high <= aim + TOLERANCE

    def to_hold(self, aim: float) -> float:
        """The slowdown at which an interval as wide as this one would hold: the aim itself where the tolerance allows
        it, else less, but not below the middle of what holds."""
        half_width = (self.high - self.low) / 2
        return aim if half_width <= TOLERANCE else max(aim - half_width, (aim / 2 + aim + TOLERANCE) / 2)

    def told(self) -> str:
        """In a line."""
        interval = f"{100 * self.low:.2f} to {100 * self.high:.2f} %"
        return f"seq_len {self.seq_len}: depth {self.depth}, {100 * self.slowdown:.2f} % ({interval})"


def nearer(seen: Sequence[Injected], aim: float) -> int:
    """The depth that should come nearest to the aim: by the line through all that was seen of a cell, each pair
    counting alike; in proportion, as long as there is no such line. At most twice the last depth, at least half, to
    DEPTH_STEP."""
    last = seen[-1]
    pairs = [one for one in seen for _ in range(one.pairs)]
    best = last.depth * aim / last.slowdown if last.slowdown > 0 else math.inf
    if len({one.depth for one in seen}) > 1:
        slope, start = linear_regression([one.depth for one in pairs], [one.slowdown for one in pairs])
        best = (aim - start) / slope if slope > 0 else best
    return DEPTH_STEP * max(1, round(min(max(best, last.depth / 2), 2 * last.depth) / DEPTH_STEP))


class TrialRepository:
    """This project's last commit in a repository of its own, with a revision for each amount of extra work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "repository"
        subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(self.folder)], check=True)
        self._git("tag", START)
        self.commit = self._git("rev-parse", "--short=12", START)

    def slowed(self, depths: Depths) -> str:
        """The revision whose SLOWED kernel does the extra work."""
        self._git("checkout", "--quiet", "--detach", START)
        file = self.folder / FILE
        before = file.read_text()
        assert before.count(FAST) == 1, f"{FILE} has no line {FAST!r}"
        file.write_text(before.replace(FAST, SLOW.format(depths=depths, rows=ROWS, columns=COLUMNS)))
        self._git("commit", "--quiet", "-a", "-m", f"slower at depths {depths}")
        return self._git("rev-parse", "HEAD")

    def _git(self, *arguments: str) -> str:
        name = ["-c", "user.name=power", "-c", "user.email=power@example.org"]
        done = subprocess.run(
            ["git", "-C", str(self.folder), *name, *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()


def tasks(seed: int) -> list[Task]:
    """The cells of a gate, as `ab` measures them."""
    members = [(OP, kernel) for kernel in KERNELS]
    problems = [Problem(seq_len=seq_len, n_head=N_HEAD, head_dim=HEAD_DIM) for seq_len in SEQ_LENS]
    return [
        Task(suite=SUITE, problem=problem, members=list(members), device="cpu", device_name="cpu",
             protocol=Protocol(seed=seed))
        for problem in problems
    ]  # fmt: skip


def paired_records(base: Revision, head: Revision, pairs: int, seed: int) -> list[tuple[Record, Record]]:
    """So many pairs of processes of the two revisions, without a stop rule: each cell's Record in base and head."""

    def starter(revision: Revision) -> Callable[[], Worker]:
        return lambda: Worker("cpu", 1, revision.environment())

    measured = Pairs((starter(base), starter(head)), tasks(seed))
    for _ in range(pairs):
        measured.measure()
    return list(zip(measured.records(BASE), measured.records(HEAD), strict=True))


def measure_injection(repository: TrialRepository, depths: Depths, pairs: int, seed: int) -> list[Injected]:
    """The slowdown of each slowed cell, by so many pairs of processes."""
    found = []
    with open_revisions(START, repository.slowed(depths), repository.folder) as revisions:
        for base, head in paired_records(revisions.base, revisions.head, pairs, seed):
            if base.kernel == SLOWED:
                logs = paired_logs(base, head)
                ratio, seq_len = paired_shift(logs).ratio(0.95), base.problem.seq_len
                found.append(
                    Injected(
                        seq_len, depths[seq_len], ratio.ratio - 1, ratio.low - 1, ratio.high - 1, len(logs)
                    )
                )  # fmt: skip
    return found


def calibrate(
    repository: TrialRepository, aim: float, depths: Depths | None, check_pairs: int, report: Report
) -> list[Injected]:
    """Extra work that makes the SLOWED kernel slower by `aim`, as check_pairs fresh pairs show it for each cell.

    depths: where to start with checks; None: they are searched first. A cell whose check holds keeps its depth while
    others are looked for. The wider a check's interval, the lower the next one is begun, so that its upper end can
    hold. Raises NotReached where for some cell no check holds."""
    seen: dict[int, list[Injected]] = {seq_len: [] for seq_len in SEQ_LENS}

    def measured(pairs: int, seed: int, what: str) -> list[Injected]:
        found = measure_injection(repository, depths or {}, pairs, seed)
        report(f"{what} {100 * aim:g} %: " + "; ".join(one.told() for one in found))
        for one in found:
            seen[one.seq_len].append(one)
        return found

    if depths is None:
        depths = {seq_len: _guess(aim, seq_len) for seq_len in SEQ_LENS}
        for number in range(SEARCHES):
            found = measured(SEARCH_PAIRS, 3000 + number, "searched")
            depths = {seq_len: nearer(known, aim) for seq_len, known in seen.items()}
            if all(abs(depths[one.seq_len] / one.depth - 1) <= NEAR for one in found):
                break
    held: dict[int, Injected] = {}
    for number in range(CHECKS):
        found = measured(check_pairs, 5000 + number, "checked")
        held |= {one.seq_len: one for one in found if one.holds(aim)}
        if len(held) == len(SEQ_LENS):
            return [held[seq_len] for seq_len in SEQ_LENS]
        depths = {n: held[n].depth if n in held else nearer(known, known[-1].to_hold(aim)) for n, known in seen.items()}
    raise NotReached(
        f"no more than {100 * aim:g} %, and at least half, could not be shown to within {100 * TOLERANCE:g} points: "
        f"the machine is too noisy for {check_pairs} pairs ({'; '.join(one.told() for one in found)})"
    )


def _guess(aim: float, seq_len: int) -> int:
    """The depth at which the extra multiplications are a fifth of that share: so small a matmul is slow."""
    width = N_HEAD * HEAD_DIM
    return round(0.2 * aim * seq_len * width * 3 * width / (ROWS * COLUMNS))
