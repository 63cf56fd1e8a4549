"""Verdicts on made-up Runs with known ratios: what must be found, what must not, and by hand from the JSON."""

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from scipy import stats
from verdict_runs import ENVIRONMENT, make_record, noisy

from andrea_bench.errors import BadInput
from andrea_bench.problem import Problem
from andrea_bench.record import Code, Record, Validity
from andrea_bench.store import read_run
from andrea_bench.verdicts import Document, Policy, judge

WriteRun = Callable[..., Path]
BASE = [100.0, 101.0, 99.5, 100.4, 99.8, 100.9, 100.2, 99.1]


def judged(write_run: WriteRun, base: list[Record], head: list[Record], policy: Policy | None = None) -> Document:
    return judge(read_run(write_run("base", base)), read_run(write_run("head", head)), policy or Policy())


def times(factor: float) -> list[float]:
    """BASE times a factor, each value moved a little: another measurement."""
    return [factor * us * (1 + 0.001 * ((7 * i) % 5 - 2)) for i, us in enumerate(BASE)]


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


def test_throttled_and_invalid_rows_decide_nothing(write_run: WriteRun) -> None:
    throttled = make_record("a", times(1.5), status="throttled", reason="clock 345 of 1980 MHz")
    invalid = make_record("b", times(1.5), validity=Validity(verdict="invalid", reasons=["another process"]))
    suspect = make_record("c", times(1.0), validity=Validity(verdict="suspect", reasons=["steal 3 %"]))
    document = judged(write_run, [make_record(k, BASE) for k in "abc"], [throttled, invalid, suspect])
    assert [c.verdict for c in document.cells] == ["inconclusive", "inconclusive", "same"]
    assert "345" in document.cells[0].reason and "another process" in document.cells[1].reason
    assert "steal 3 %" in document.cells[2].reason
    assert document.exit_code == 3


@pytest.mark.parametrize("bad", [0.0, -5.0, math.nan, math.inf])
def test_times_that_are_none_never_pass(write_run: WriteRun, bad: float) -> None:
    for name, base, head in (("x", BASE, [bad, *BASE[1:]]), ("y", [bad, *BASE[1:]], BASE)):
        stored = read_run(write_run(name + "b", [make_record(medians_us=BASE)]))
        stored.records = [make_record(medians_us=base)]
        other = read_run(write_run(name + "h", [make_record(medians_us=BASE)]))
        other.records = [make_record(medians_us=head)]
        document = judge(stored, other, Policy())
        assert (document.verdict, document.exit_code) == ("inconclusive", 3)
        assert "invalid" in document.cells[0].reason and f"{bad:g}" in document.cells[0].reason


def test_ok_without_samples_is_invalid(write_run: WriteRun) -> None:
    empty = make_record(status="ok", timing_mode="host_wall", cache="warm")
    document = judged(write_run, [make_record(medians_us=BASE)], [empty])
    assert document.exit_code == 3 and "no samples" in document.cells[0].reason
    lost = make_record(medians_us=times(1.0), block=[0, 1])
    document = judge(
        read_run(write_run("b", [make_record(medians_us=BASE)])), read_run(write_run("h", [lost])), Policy()
    )
    assert document.exit_code == 3 and "24 samples but 2 blocks" in document.cells[0].reason


def test_all_cells_unsupported_is_no_pass(write_run: WriteRun) -> None:
    document = judged(write_run, [make_record("a"), make_record("b")], [make_record("a"), make_record("b")])
    assert (document.verdict, document.exit_code) == ("inconclusive", 3)
    assert document.cells == [] and len(document.not_timed) == 2
    assert document.reason == "nothing to compare: 2 cells could run in neither"


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


H100 = {"device": "cuda:0", "gpu": {"uuid": "GPU-1", "name": "NVIDIA H100 PCIe", "memory_total_bytes": 85_000_000_000}}
H200 = {"device": "cuda:0", "gpu": {"uuid": "GPU-2", "name": "NVIDIA H200", "memory_total_bytes": 150_000_000_000}}


def gpu_runs(write_run: WriteRun, base: object, head: object, policy: Policy, head_device: str = "cuda:0") -> Document:
    fields = {"timing_mode": "cuda_event"}
    a = write_run("base", [make_record(medians_us=BASE, device="cuda:0", **fields)], environment=base)
    b = write_run("head", [make_record(medians_us=times(1.0), device=head_device, **fields)], environment=head)
    return judge(read_run(a), read_run(b), policy)


def test_other_device_is_refused_with_what_differs(write_run: WriteRun) -> None:
    document = gpu_runs(write_run, H100, H200, Policy())
    assert (document.verdict, document.exit_code) == ("not_comparable", 3)
    assert document.cells[0].verdict == "not_comparable" and document.cells[0].ratio is None
    assert "NVIDIA H100 PCIe -> NVIDIA H200" in document.reason and "memory" in document.reason


def test_other_device_allowed_is_a_report_but_no_pass(write_run: WriteRun) -> None:
    document = gpu_runs(write_run, H100, H200, Policy(allow_different=["device"]))
    assert document.cells[0].ratio == pytest.approx(1.0, rel=0.01)
    assert any("devices differ" in warning for warning in document.warnings)
    assert (document.verdict, document.exit_code) == ("not_comparable", 3)


def test_same_device_under_another_index_is_the_same(write_run: WriteRun) -> None:
    moved = {**H100, "device": "cuda:4"}
    document = gpu_runs(write_run, H100, moved, Policy(), head_device="cuda:4")
    assert (document.verdict, document.exit_code, document.differences) == ("same", 0, [])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("timing_mode", {"timing_mode": "cuda_graph"}),
        ("cache", {"cache": "cold"}),
        ("threads", {"device": "cpu:threads=2"}),
    ],
)
def test_other_timing_is_refused_unless_allowed_by_name(write_run: WriteRun, name: str, change: dict[str, str]) -> None:
    base = read_run(write_run("a", [make_record(medians_us=BASE)]))
    head = read_run(write_run("b", [make_record(medians_us=times(1.0), **change)]))
    document = judge(base, head, Policy())
    assert (document.verdict, document.exit_code) == ("not_comparable", 3)
    assert [d.name for d in document.differences] == [name]
    allowed = judge(base, head, Policy(allow_different=[name]))
    assert (allowed.verdict, allowed.exit_code) == ("same", 0)
    assert allowed.differences[0].allowed


def test_other_threads_of_the_protocol_are_refused(write_run: WriteRun) -> None:
    base = write_run("a", [make_record(medians_us=BASE)], protocol={"threads": 1})
    head = write_run("b", [make_record(medians_us=times(1.0))], protocol={"threads": 2})
    assert judge(read_run(base), read_run(head), Policy()).verdict == "not_comparable"


def test_records_of_one_cell_are_joined_by_timing(write_run: WriteRun) -> None:
    """Warm and cold of one cell in both Runs, in another order: never compared with one another."""
    warm, cold = make_record(medians_us=BASE), make_record(medians_us=[3 * us for us in BASE], cache="cold")
    warm2 = make_record(medians_us=times(1.0))
    cold2 = make_record(medians_us=[3 * us for us in times(1.0)], cache="cold")
    document = judged(write_run, [warm, cold], [cold2, warm2])
    assert [c.verdict for c in document.cells] == ["same", "same"]


def test_unknown_difference_and_metric_are_refused() -> None:
    with pytest.raises(BadInput, match="timing_mode"):
        Policy(allow_different=["timing-mode"])
    with pytest.raises(BadInput, match="not known whether more of it is better"):
        Policy(metric="score")


@pytest.mark.parametrize(
    ("metric", "factor", "verdict"),
    [("tflops", 1.2, "slower"), ("tflops", 0.8, "faster"), ("gb_per_s", 1.2, "slower"), ("time", 1.2, "slower")],
)
def test_direction_of_better(write_run: WriteRun, metric: str, factor: float, verdict: str) -> None:
    """More TFLOP/s (less time) is an improvement, fewer a regression."""
    policy = Policy(metric=metric)
    document = judged(write_run, [make_record(medians_us=BASE)], [make_record(medians_us=times(factor))], policy)
    assert document.verdict == verdict


def test_likely_causes_are_named(write_run: WriteRun) -> None:
    base = make_record(medians_us=BASE, selected_backend="flash")
    head = make_record(medians_us=times(1.5), selected_backend="math", code=Code(kernel_source_hash="bbbb"))
    a = write_run("a", [base])
    b = write_run("b", [head], environment={**ENVIRONMENT, "libraries": {"torch": "2.14.0"}})
    problem = '{"seq_len": 64, "n_head": 4, "head_dim": 16}'
    facts = f'{{"facts": [{{"kernel": "sdpa_flash", "problem": {problem}, "spill_store_bytes": %d}}]}}'
    (a / "facts.json").write_text(facts % 0)
    (b / "facts.json").write_text(facts % 172)
    (cell,) = judge(read_run(a), read_run(b), Policy()).cells
    assert cell.likely_causes == [
        "selected backend: flash -> math",
        "source of sdpa_flash changed: aaaa -> bbbb",
        "Facts of sdpa_flash: spill_store_bytes 0 -> 172",
        "torch: 2.13.0 -> 2.14.0",
    ]


@pytest.mark.parametrize(
    ("device", "before", "after", "named"),
    [
        ("cpu", "aten::mm, aten::copy_", "aten::mm", False),  # just under a tenth this time
        ("cpu", "aten::mm, aten::copy_", "aten::copy_, aten::mm", False),
        ("cpu:threads=2", "aten::mm, aten::copy_", "aten::mm, aten::add", False),
        ("cpu", "aten::mm, aten::copy_", "aten::bmm, aten::mm", True),
        ("cpu", "aten::mm, aten::bmm", "aten::bmm", True),
        ("cuda", "gemm<64, 128>", "gemm<64, 64>", True),
    ],
)
def test_a_short_operator_that_comes_or_goes_is_no_other_backend(
    device: str, before: str, after: str, named: bool, write_run: WriteRun
) -> None:
    base, head = (
        write_run(name, [make_record(medians_us=medians, device=device, selected_backend=backend)])
        for name, medians, backend in (("a", BASE, before), ("b", times(1.5), after))
    )
    (cell,) = judge(read_run(base), read_run(head), Policy()).cells
    assert cell.likely_causes == ([f"selected backend: {before} -> {after}"] if named else [])


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
