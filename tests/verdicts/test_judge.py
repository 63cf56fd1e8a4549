"""Verdicts on made-up Runs with known ratios: what must be found, what must not, and by hand from the JSON."""

import math
import random
from pathlib import Path

import pytest
from scipy import stats
from verdict_runs import BASE, WriteRun, judged, make_record, noisy, times

from andrea_bench.errors import BadInput
from andrea_bench.problem import Problem
from andrea_bench.record import Record, RunHead, Validity
from andrea_bench.store import StoredRun, read_run
from andrea_bench.verdicts import Document, Policy, judge


@pytest.mark.parametrize(
    ("factor", "verdict", "exit_code"),
    [(1.0, "same", 0), (1.03, "same", 0), (1.10, "slower", 1), (0.90, "faster", 0), (1.05, "inconclusive", 3),
     (0.95, "same", 0)],
)  # fmt: skip
def test_verdict_by_the_interval(write_run: WriteRun, factor: float, verdict: str, exit_code: int) -> None:
    document = judged(write_run, [make_record(medians_us=BASE)], [make_record(medians_us=times(factor))])
    (cell,) = document.cells
    assert (cell.verdict, document.verdict, document.exit_code) == (verdict, verdict, exit_code)
    assert cell.ratio == pytest.approx(factor, rel=0.005)
    assert cell.low is not None and cell.high is not None and cell.low < cell.ratio < cell.high
    assert (cell.blocks_base, cell.blocks_head) == (8, 8)


def test_any_verdict_can_be_recomputed_from_the_document(write_run: WriteRun) -> None:
    """With base_us, head_us, confidence and allowance alone, by scipy's test inverted."""
    generator = random.Random(4)
    factors = {"a": 1.0, "b": 1.08, "c": 0.9, "d": 1.045, "e": 1.2}
    base = [make_record(k, noisy(200, 0.01, 10, generator)) for k in factors]
    head = [make_record(k, noisy(200 * f, 0.01, 10, generator)) for k, f in factors.items()]
    document = judged(write_run, base, head)
    for cell in document.cells:
        differences = sorted(math.log(h / b) for h in cell.head_us for b in cell.base_us)
        assert cell.ratio == pytest.approx(math.exp((differences[49] + differences[50]) / 2))
        rank = differences.index(min(differences, key=lambda d: abs(d - math.log(cell.low)))) + 1
        assert cell.high == pytest.approx(math.exp(differences[100 - rank]))
        shifted = [h / (cell.low * (1 - 1e-9)) for h in cell.head_us]
        p = stats.mannwhitneyu(shifted, cell.base_us, alternative="greater", method="exact").pvalue
        assert cell.confidence == pytest.approx(1 - 2 * p)
        assert cell.confidence >= cell.confidence_needed
        beyond, within = cell.low > 1 + cell.allowance, cell.high <= 1 + cell.allowance
        expected = "slower" if beyond else "same" if within else "inconclusive"
        assert cell.verdict == ("faster" if cell.high < 1 / (1 + cell.allowance) else expected)
    # Holm: two are slower, so that the other three share the 5 %.
    assert [c.verdict for c in document.cells] == ["same", "slower", "faster", "inconclusive", "slower"]
    assert document.cells[0].confidence_needed == pytest.approx(1 - 0.05 / 3)
    assert document.cells[4].confidence_needed == pytest.approx(1 - 0.05 / 5)


def test_a_verdict_on_pairs_can_be_recomputed_from_the_document(write_run: WriteRun) -> None:
    """As of ab: the Walsh averages of the pairs' log ratios, and scipy's signed-rank test at the interval's ends."""
    generator = random.Random(5)
    factors = {"a": 1.0, "b": 1.08, "c": 0.9, "d": 1.05}
    levels = noisy(200, 0.1, 14, generator)
    base = [make_record(k, [us * generator.lognormvariate(0, 0.01) for us in levels]) for k in factors]
    head = [make_record(k, [f * us * generator.lognormvariate(0, 0.01) for us in levels]) for k, f in factors.items()]
    document = judged(write_run, base, head, Policy(paired=True))
    for cell in document.cells:
        logs = [math.log(h / b) for b, h in zip(cell.base_us, cell.head_us, strict=True)]
        walsh = sorted((x + y) / 2 for i, x in enumerate(logs) for y in logs[i:])
        assert len(walsh) == 105
        assert cell.ratio == pytest.approx(math.exp(walsh[52]))
        assert cell.low is not None and cell.high is not None and cell.allowance is not None
        rank = walsh.index(min(walsh, key=lambda w: abs(w - math.log(cell.low)))) + 1
        assert cell.high == pytest.approx(math.exp(walsh[105 - rank]))
        p = stats.wilcoxon([x - math.log(cell.low) + 1e-12 for x in logs], alternative="greater", method="exact").pvalue
        assert cell.confidence == pytest.approx(1 - 2 * p)
        within = "same" if cell.high <= 1 + cell.allowance else "inconclusive"
        expected = "slower" if cell.low > 1 + cell.allowance else within
        assert cell.verdict == ("faster" if cell.high < 1 / (1 + cell.allowance) else expected)
    assert [cell.verdict for cell in document.cells] == ["same", "slower", "faster", "inconclusive"]


def test_too_few_processes_decide_nothing_and_say_how_many_would(write_run: WriteRun) -> None:
    document = judged(
        write_run,
        [make_record(k, [100.0]) for k in "abcdefgh"],
        [make_record(k, [150.0]) for k in "abcdefgh"],
    )
    assert (document.verdict, document.exit_code) == ("inconclusive", 3)
    cell = document.cells[0]
    assert cell.smallest_detectable_change is None
    assert cell.processes_needed == 6  # 2 / C(12, 6) = 0.0022 <= 0.05 / 8 < 2 / C(10, 5) = 0.0079
    assert "1 in base and 1 in head" in cell.reason and "needs 6 processes a side" in cell.reason


def test_inconclusive_says_what_could_have_been_shown(write_run: WriteRun) -> None:
    generator = random.Random(8)
    base, head = ([make_record(medians_us=noisy(100, 0.05, 8, generator))] for _ in range(2))
    document = judged(write_run, base, head, Policy(max_slowdown=0.01))
    (cell,) = document.cells
    assert cell.verdict == "inconclusive"
    assert cell.smallest_detectable_change is not None and 0.05 < cell.smallest_detectable_change < 0.25
    assert cell.processes_needed is None or cell.processes_needed > 8
    assert f"{100 * cell.smallest_detectable_change:.2g} %" in cell.reason


@pytest.mark.parametrize(("on_inconclusive", "exit_code"), [("report", 3), ("fail", 1), ("pass", 0)])
def test_policy_for_inconclusive(write_run: WriteRun, on_inconclusive: str, exit_code: int) -> None:
    base, head = [make_record(medians_us=[100.0])], [make_record(medians_us=[100.5])]
    document = judged(write_run, base, head, Policy(on_inconclusive=on_inconclusive))  # type: ignore[arg-type]
    assert (document.verdict, document.exit_code) == ("inconclusive", exit_code)


@pytest.mark.parametrize("status", ["unsupported", "error", "out_of_memory", "timeout", "skipped"])
def test_ok_that_cannot_run_now_is_broken(write_run: WriteRun, status: str) -> None:
    gone = make_record("a", status=status, reason="cause")
    base = [make_record("a", BASE), make_record("b", BASE)]
    document = judged(write_run, base, [gone, make_record("b", times(1.0))])
    assert [(c.kernel, c.verdict) for c in document.cells] == [("a", "broken"), ("b", "same")]
    assert (document.verdict, document.exit_code) == ("broken", 1)
    assert status in document.cells[0].reason and "cause" in document.cells[0].reason


def test_missing_fails_unless_allowed(write_run: WriteRun) -> None:
    base = [make_record("a", BASE), make_record("b", BASE), make_record("c")]
    head = [make_record("b", times(1.0)), make_record("d", BASE)]
    one = judge(read_run(write_run("b1", base)), read_run(write_run("h1", head)), Policy())
    assert (one.verdict, one.exit_code) == ("broken", 1)
    assert [c.kernel for c in one.only_base] == ["a", "c"] and [c.kernel for c in one.only_head] == ["d"]
    other = judge(read_run(write_run("b2", base)), read_run(write_run("h2", head)), Policy(allow_missing=True))
    assert (other.verdict, other.exit_code) == ("same", 0)


def test_wrong_results_win_over_all(write_run: WriteRun) -> None:
    wrong = make_record("a", status="wrong", reason="relative error 1, tolerance 0.01")
    document = judged(
        write_run, [make_record("a", BASE), make_record("b", BASE)], [wrong, make_record("b", times(1.5))]
    )
    assert (document.verdict, document.exit_code) == ("broken", 5)
    assert "wrong" in document.reason and "1 slower" in document.reason
    assert judge_new_wrong(write_run).exit_code == 5


def judge_new_wrong(write_run: WriteRun) -> Document:
    head = [make_record("b", times(1.0)), make_record("new", status="wrong", reason="x")]
    return judge(read_run(write_run("b", [make_record("b", BASE)])), read_run(write_run("h", head)), Policy())


POLICIES = ["report", "fail", "pass"]


@pytest.mark.parametrize("on_inconclusive", POLICIES)
def test_throttled_and_invalid_rows_decide_nothing(write_run: WriteRun, on_inconclusive: str) -> None:
    """And stay exit code 3, whatever the policy says of what is undecided."""
    throttled = make_record("a", times(1.5), status="throttled", reason="clock 345 of 1980 MHz")
    invalid = make_record("b", times(1.5), validity=Validity(verdict="invalid", reasons=["another process"]))
    suspect = make_record("c", times(1.0), validity=Validity(verdict="suspect", reasons=["steal 3 %"]))
    policy = Policy(on_inconclusive=on_inconclusive)  # type: ignore[arg-type]
    document = judged(write_run, [make_record(k, BASE) for k in "abc"], [throttled, invalid, suspect], policy)
    assert [c.verdict for c in document.cells] == ["inconclusive", "inconclusive", "same"]
    assert [c.invalid for c in document.cells] == [True, True, False]
    assert "345" in document.cells[0].reason and "another process" in document.cells[1].reason
    assert "steal 3 %" in document.cells[2].reason
    assert (document.verdict, document.exit_code) == ("inconclusive", 3)
    assert "2 of them invalid or throttled" in document.reason


def test_reasons_of_one_kind_are_told_once_with_their_range(write_run: WriteRun) -> None:
    busy = [f"other processes kept {n} of 2 CPUs busy" for n in ("0.31", "1.20", "0.9", "0.31")]
    drift = ["timings drifted by -6.0% within the group", "timings drifted by +5.5% within the group"]
    # Process ids are no quantities.
    others = ["other processes on the GPU: 4711", "other processes on the GPU: 4800"]
    sides = [
        make_record("a", us, validity=Validity(verdict="suspect", reasons=reasons))
        for us, reasons in (
            (BASE, [busy[0], busy[1], drift[0], others[0]]),
            (times(1.0), [*busy[2:], drift[1], others[1], "no counters"]),
        )
    ]
    (cell,) = judged(write_run, sides[:1], sides[1:]).cells
    assert cell.reason.endswith(
        " (suspect: other processes kept 0.31 to 1.20 of 2 CPUs busy in 3 readings; timings drifted by -6.0 to +5.5% "
        "within the group in 2 readings; other processes on the GPU: 4711; other processes on the GPU: 4800; "
        "no counters)"
    )


def test_reasons_of_an_invalid_side_are_told_once(write_run: WriteRun) -> None:
    clocks = [f"SM clock {mhz} of 1980 MHz ({share}%): {why}" for mhz, share, why in
              [(900, 45, "power cap"), (1100, 56, "power cap"), (990, 50, "sync boost")]]  # fmt: skip
    head = make_record("a", times(1.5), validity=Validity(verdict="invalid", reasons=clocks))
    (cell,) = judged(write_run, [make_record("a", BASE)], [head]).cells
    assert cell.reason == (
        "head is invalid (SM clock 900 to 1100 of 1980 MHz (45 to 56%) in 2 readings: power cap; "
        "SM clock 990 of 1980 MHz (50%): sync boost)"
    )


@pytest.mark.parametrize(("on_inconclusive", "exit_code"), [("report", 3), ("fail", 1), ("pass", 3)])
def test_invalid_rows_beside_undecided_ones(write_run: WriteRun, on_inconclusive: str, exit_code: int) -> None:
    """A failure wins over what could not be decided, that over a pass."""
    base = [make_record("a", BASE), make_record("b", [100.0])]
    head = [make_record("a", times(1.0), status="throttled", reason="hot"), make_record("b", [100.5])]
    document = judged(write_run, base, head, Policy(on_inconclusive=on_inconclusive))  # type: ignore[arg-type]
    assert [(c.verdict, c.invalid) for c in document.cells] == [("inconclusive", True), ("inconclusive", False)]
    assert (document.verdict, document.exit_code) == ("inconclusive", exit_code)


@pytest.mark.parametrize("on_inconclusive", POLICIES)
@pytest.mark.parametrize("bad", [0.0, -5.0, math.nan, math.inf])
def test_times_that_are_none_never_pass(write_run: WriteRun, bad: float, on_inconclusive: str) -> None:
    policy = Policy(on_inconclusive=on_inconclusive)  # type: ignore[arg-type]
    for name, base, head in (("x", BASE, [bad, *BASE[1:]]), ("y", [bad, *BASE[1:]], BASE)):
        stored = read_run(write_run(name + "b", [make_record(medians_us=BASE)]))
        stored.records = [make_record(medians_us=base)]
        other = read_run(write_run(name + "h", [make_record(medians_us=BASE)]))
        other.records = [make_record(medians_us=head)]
        document = judge(stored, other, policy)
        assert (document.verdict, document.exit_code) == ("inconclusive", 3)
        assert "invalid" in document.cells[0].reason and f"{bad:g}" in document.cells[0].reason


@pytest.mark.parametrize("on_inconclusive", POLICIES)
def test_ok_without_samples_is_invalid(write_run: WriteRun, on_inconclusive: str) -> None:
    policy = Policy(on_inconclusive=on_inconclusive)  # type: ignore[arg-type]
    empty = make_record(status="ok", timing_mode="host_wall", cache="warm")
    document = judged(write_run, [make_record(medians_us=BASE)], [empty], policy)
    assert document.exit_code == 3 and "no samples" in document.cells[0].reason
    lost = make_record(medians_us=times(1.0), block=[0, 1])
    stored = read_run(write_run("h", [make_record(medians_us=times(1.0))]))
    stored.records = [lost]
    document = judge(read_run(write_run("b", [make_record(medians_us=BASE)])), stored, policy)
    assert document.exit_code == 3 and "24 samples but 2 blocks" in document.cells[0].reason


def test_a_cell_of_a_trial_that_was_never_measured_is_undecided_not_invalid(write_run: WriteRun) -> None:
    """The machine was held back in each of its pairs; nothing that is left is invalid."""
    cells = [make_record("a", BASE), make_record("b", status="ok", timing_mode="host_wall", cache="warm")]
    head = [make_record("a", times(1.0)), cells[1]]
    document = judged(write_run, cells, head, Policy(paired=True, on_inconclusive="pass"))
    assert (document.cells[1].verdict, document.cells[1].invalid) == ("inconclusive", False)
    assert (document.verdict, document.exit_code) == ("inconclusive", 0)


def test_all_cells_unsupported_is_no_pass(write_run: WriteRun) -> None:
    document = judged(write_run, [make_record("a"), make_record("b")], [make_record("a"), make_record("b")])
    assert (document.verdict, document.exit_code) == ("inconclusive", 3)
    assert document.cells == [] and len(document.not_timed) == 2
    assert document.reason == "nothing to compare: no time in base for 2 cells"


def test_empty_runs_are_no_pass(write_run: WriteRun) -> None:
    assert judged(write_run, [], []).exit_code == 3


def test_copies_are_refused(write_run: WriteRun) -> None:
    run, copy = write_run("run", [make_record(medians_us=BASE)]), write_run("copy", [make_record(medians_us=BASE)])
    with pytest.raises(BadInput, match="both base and head"):
        judge(read_run(run), read_run(run), Policy())
    with pytest.raises(BadInput, match="copy of the other"):
        judge(read_run(run), read_run(copy), Policy())


def test_other_units_are_not_a_slowdown(write_run: WriteRun) -> None:
    base = [make_record("a", BASE), make_record("b", [3 * us for us in BASE])]
    head = [make_record("a", times(1e-3)), make_record("b", [3 * us for us in times(1e-3)])]
    document = judged(write_run, base, head)
    assert (document.verdict, document.exit_code) == ("not_comparable", 3)
    assert "not in microseconds" in document.cells[0].reason


def test_a_machine_that_is_not_named_is_said(write_run: WriteRun) -> None:
    sides = [read_run(write_run(name, [make_record("a", times(factor))])) for name, factor in (("b", 1.0), ("h", 1.01))]
    assert judge(*sides, Policy()).warnings == []
    for side in sides:
        side.head.environment = {}
    document = judge(*sides, Policy())
    told = [warning for warning in document.warnings if "doesn't say on which machine" in warning]
    assert [warning.split()[0] for warning in told] == ["base", "head"]


def test_one_program_has_one_unit(write_run: WriteRun) -> None:
    """In pairs both sides are timed by one program: a thousand times is a slowdown."""
    document = judged(
        write_run, [make_record("a", BASE)], [make_record("a", times(1000.0))], Policy(paired=True)
    )  # fmt: skip
    assert (document.verdict, document.exit_code) == ("slower", 1)


def test_facts_that_lie_where_pairs_are_measured_are_no_causes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sides of a trial are no folders; one of that name may hold anything."""
    monkeypatch.chdir(tmp_path)
    Path("base").mkdir()
    Path("base", "facts.json").write_text("{}")
    sides = [StoredRun(Path(name), RunHead(complete=True, started_at=""), [make_record("a", times(factor))])
             for name, factor in (("base", 1.0), ("head", 1.2))]  # fmt: skip
    assert judge(*sides, Policy(paired=True)).verdict == "slower"
    with pytest.raises(BadInput, match=r"base/facts\.json"):
        judge(*sides, Policy())


def test_changes_below_what_a_clock_tells_are_none(write_run: WriteRun) -> None:
    """0.40 to 0.48 us is 20 %, but less than a call of the clock."""
    document = judged(write_run, [make_record(medians_us=[us * 4e-3 for us in BASE])],
                      [make_record(medians_us=[us * 4e-3 for us in times(1.2)])])  # fmt: skip
    assert document.cells[0].verdict == "same"
    assert document.cells[0].allowance == pytest.approx(0.25, rel=0.01)


def test_pairs_cancel_what_both_processes_of_a_block_share(write_run: WriteRun) -> None:
    generator = random.Random(6)
    levels = noisy(100, 0.2, 12, generator)
    base = [make_record(medians_us=levels)]
    head = [make_record(medians_us=[us * 1.08 * generator.lognormvariate(0, 0.005) for us in levels])]
    assert judged(write_run, base, head, Policy(paired=True)).verdict == "slower"
    unpaired = judge(read_run(write_run("b", base)), read_run(write_run("h", head)), Policy())
    assert unpaired.verdict == "inconclusive"


def test_two_runs_of_one_commit_do_not_fail_the_gate(write_run: WriteRun) -> None:
    """200 A/A gates, each of a 1.5 us kernel with 8 % noise and a 2 ms kernel with 0.5 %; and a true 10 %."""
    generator = random.Random(2)
    small, large = Problem(seq_len=16, n_head=1, head_dim=8), Problem(seq_len=1024, n_head=8, head_dim=64)
    base, head = read_run(write_run("b", [])), read_run(write_run("h", []))
    alarms = found = 0
    for _ in range(200):

        def side(factor: float) -> list[Record]:
            return [make_record("tiny", noisy(1.5, 0.08, 8, generator), problem=small),
                    make_record("large", noisy(2000 * factor, 0.005, 8, generator), problem=large)]  # fmt: skip

        base.records, head.records = side(1.0), side(1.0)
        alarms += judge(base, head, Policy()).exit_code == 1
        head.records = side(1.1)
        cells = judge(base, head, Policy()).cells
        found += cells[1].verdict == "slower"
        alarms += cells[0].verdict == "slower"
    assert alarms <= 4  # 5 % over the family is the promise; beyond an allowance it is far less
    assert found == 200
