"""How `ab` takes the time of a process, by its fifth percentile, and what keeps a cell from passing by that alone."""

import math
import random
from pathlib import Path

import msgspec
import numpy
import pytest
from verdict_runs import WriteRun, judged, make_record

from andrea_bench.record import Code, Record, RunHead
from andrea_bench.store import StoredRun
from andrea_bench.verdicts import Policy, judge

QUICK = Policy(paired=True, quantile=0.05, max_slowdown=0.01)  # as of ab
CALLS = 40


def calls(kernel: str, factor: float, share: float, seed: int, busy: float = 0.0) -> Record:
    """12 processes of CALLS samples around 200 us, of which a share is slower by the factor. busy: share of the
    processes in which other work makes three in five of the calls twice as slow."""
    generator = random.Random(seed)
    samples = []
    for _ in range(12):
        spoilt = generator.random() < busy
        for i in range(CALLS):
            us = 200 * generator.lognormvariate(0, 0.002) * (factor if i < share * CALLS else 1.0)
            samples.append(us * (2.0 if spoilt and i % 5 < 3 else 1.0))
    record = make_record(kernel, [1.0] * 12)
    block = [process for process in range(12) for _ in range(CALLS)]
    return msgspec.structs.replace(
        record, samples_us=samples, block=block, order=list(range(12 * CALLS)), round=list(range(CALLS)) * 12
    )


@pytest.mark.parametrize(
    ("factor", "share", "verdict"),
    [(1.0, 0.0, "same"), (1.03, 1.0, "slower"), (0.97, 1.0, "faster"), (1.05, 0.6, "inconclusive"),
     (1.05, 0.3, "same")],
)  # fmt: skip
def test_pairs_are_compared_by_their_quick_calls_and_never_the_same_against_their_medians(
    write_run: WriteRun, factor: float, share: float, verdict: str
) -> None:
    """Where three calls in five are slower, the quick ones are as quick as before: nothing to pass."""
    document = judged(write_run, [calls("a", 1.0, 0.0, 1)], [calls("a", factor, share, 2)], QUICK)
    (cell,) = document.cells
    assert cell.verdict == verdict
    assert ("by the median of all calls it is 1.0" in cell.reason) == (verdict == "inconclusive")
    assert cell.invalid == (verdict == "inconclusive")


def test_no_policy_lets_a_cell_pass_whose_medians_are_slower(write_run: WriteRun) -> None:
    policy = msgspec.structs.replace(QUICK, on_inconclusive="pass")
    head = msgspec.structs.replace(calls("a", 1.9, 0.6, 2), code=Code(kernel_source_hash="bbbb"))
    document = judged(write_run, [calls("a", 1.0, 0.0, 1)], [head], policy)
    assert (document.verdict, document.exit_code) == ("inconclusive", 3)
    assert document.cells[0].likely_causes == ["source file of a changed: aaaa -> bbbb"]


def test_other_work_in_some_processes_does_not_hide_that_a_cell_is_the_same(write_run: WriteRun) -> None:
    base, head = [calls("a", 1.0, 0.0, 3, busy=0.4)], [calls("a", 1.0, 0.0, 4, busy=0.4)]
    (cell,) = judged(write_run, base, head, QUICK).cells
    assert cell.verdict == "same" and max(cell.base_median_us) > 1.9 * min(cell.base_median_us)
    policy = Policy(paired=True, max_slowdown=0.01)
    assert judge(*(StoredRun(Path(n), RunHead(complete=True, started_at=""), r) for n, r in (("b", base), ("h", head))),
                 policy).cells[0].verdict == "inconclusive"  # fmt: skip


def test_the_times_of_processes_can_be_recomputed_from_their_samples(write_run: WriteRun) -> None:
    base, head = calls("a", 1.0, 0.0, 5), calls("a", 1.05, 0.6, 6)
    document = judged(write_run, [base], [head], QUICK)
    (cell,) = document.cells
    assert document.policy.quantile == 0.05
    for record, times_us, medians_us in (
        (base, cell.base_us, cell.base_median_us), (head, cell.head_us, cell.head_median_us),
    ):  # fmt: skip
        samples = numpy.array(record.samples_us).reshape(12, CALLS)
        assert times_us == pytest.approx(numpy.quantile(samples, 0.05, axis=1).tolist())
        assert medians_us == pytest.approx(numpy.median(samples, axis=1).tolist())
    # The medians by hand: 12 pairs, all of them above the allowance, leave no doubt at 95 %.
    logs = [math.log(h / b) for b, h in zip(cell.base_median_us, cell.head_median_us, strict=True)]
    assert min(logs) > math.log(1.01) and cell.verdict == "inconclusive"


def test_gate_judges_by_medians(write_run: WriteRun) -> None:
    (cell,) = judged(write_run, [calls("a", 1.0, 0.0, 7)], [calls("a", 1.05, 0.6, 8)], Policy(max_slowdown=0.01)).cells
    assert cell.verdict == "slower" and cell.base_median_us == []
