"""What changed beside the time is named as a likely cause."""

import pytest
from verdict_runs import BASE, ENVIRONMENT, WriteRun, judged, make_record, times

from andrea_bench.record import Code
from andrea_bench.store import read_run
from andrea_bench.verdicts import Policy, judge


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
        "source file of sdpa_flash changed: aaaa -> bbbb",
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


@pytest.mark.parametrize(
    ("before", "after", "set_in", "named"),
    [
        (1980, 1200, "head", ["SM clock: 1980 -> 1200 MHz (application clocks setting in head alone)"]),
        (1200, 1980, "base", ["SM clock: 1200 -> 1980 MHz (application clocks setting in base alone)"]),
        (1980, 1755, "both", ["SM clock: 1980 -> 1755 MHz"]),
        (1980, 1755, "", ["SM clock: 1980 -> 1755 MHz"]),
        (1980, 1965, "", []),  # one step of a boost clock
        (1980, None, "head", []),
    ],
)
def test_another_clock_of_the_gpu_is_a_likely_cause(
    write_run: WriteRun, before: float, after: float | None, set_in: str, named: list[str]
) -> None:
    def counters(side: str, clock: float | None) -> dict[str, object]:
        reasons = ["application clocks setting"] if set_in in (side, "both") else ["idle"]
        return {"gpu_sm_clock_mhz": clock, "gpu_event_reasons": reasons}

    base = make_record(medians_us=BASE, device="cuda:0", counters=counters("base", before))
    head = make_record(medians_us=times(1.5), device="cuda:0", counters=counters("head", after))
    (cell,) = judged(write_run, [base], [head]).cells
    assert (cell.verdict, cell.likely_causes) == ("slower", named)
