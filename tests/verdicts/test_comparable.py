"""What two Runs may differ in (cases C28, GC02), and by what they may be judged (GC05)."""

from xml.etree import ElementTree

import pytest
from verdict_runs import BASE, WriteRun, judged, make_record, times

from andrea_bench.errors import BadInput
from andrea_bench.store import read_run
from andrea_bench.verdicts import Document, Policy, judge
from andrea_bench.verdicts.annotations import annotations
from andrea_bench.verdicts.junit import junit
from andrea_bench.verdicts.markdown import markdown

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


DEVICES = {"slower": 1.5, "same": 1.0, "faster": 0.5, "gone": 1.0, "missing": 1.0, "undecided": 1.0}


@pytest.fixture
def across_devices(write_run: WriteRun) -> Document:
    """Cells of every fate, base and head on other GPUs, which is allowed."""
    fields = {"timing_mode": "cuda_event", "device": "cuda:0"}
    base = [make_record(k, BASE[: 1 if k == "undecided" else 8], **fields) for k in DEVICES]
    head = [make_record(k, times(f), **fields) for k, f in DEVICES.items() if k in ("slower", "same", "faster")]
    head += [make_record("gone", device="cuda:0", reason="needs Hopper"), make_record("undecided", [100.5], **fields)]
    runs = (write_run("base", base, environment=H100), write_run("head", head, environment=H200))
    return judge(read_run(runs[0]), read_run(runs[1]), Policy(allow_different=["device"]))


def test_other_device_allowed_is_a_report_but_no_pass(across_devices: Document) -> None:
    """Each cell keeps ratio and interval and has no verdict."""
    cells = {cell.kernel: cell for cell in across_devices.cells}
    assert cells.keys() == DEVICES.keys()
    assert {cell.verdict for cell in cells.values()} == {"not_comparable"}
    for kernel in ("slower", "same", "faster"):
        cell = cells[kernel]
        assert cell.ratio == pytest.approx(DEVICES[kernel], rel=0.01)
        assert cell.low is not None and cell.high is not None and cell.low < cell.ratio < cell.high
        assert cell.reason == "the devices differ: a ratio, no verdict"
    assert "needs Hopper" in cells["gone"].reason and "is missing in head" in cells["missing"].reason
    assert cells["undecided"].processes_needed is None
    assert any("devices differ" in warning for warning in across_devices.warnings)
    assert (across_devices.verdict, across_devices.exit_code) == ("not_comparable", 3)
    assert "NVIDIA H100 PCIe -> NVIDIA H200" in across_devices.reason
    assert "--allow-different" not in across_devices.reason  # it was given


def test_other_device_allowed_passes_and_fails_nothing_in_any_format(across_devices: Document) -> None:
    suite = ElementTree.fromstring(junit(across_devices))
    assert [[child.tag for child in case] for case in suite] == [["error", "system-out"]] + [["error"]] * len(DEVICES)
    for system, mark in (("github", "::error "), ("azure", "type=error]"), ("teamcity", "status='ERROR'")):
        whole, *of_cells = annotations(across_devices, system)
        assert mark in whole and "exit 3" in whole
        assert len(of_cells) == len(DEVICES) and not any(mark in line for line in of_cells)
    assert markdown(across_devices).count("| not comparable | ") == len(DEVICES)


def test_wrong_results_are_wrong_on_any_device(write_run: WriteRun) -> None:
    fields = {"timing_mode": "cuda_event", "device": "cuda:0"}
    wrong = make_record("a", device="cuda:0", status="wrong", reason="relative error 1")
    base = write_run("base", [make_record(k, BASE, **fields) for k in "ab"], environment=H100)
    head = write_run("head", [wrong, make_record("b", times(1.5), **fields)], environment=H200)
    document = judge(read_run(base), read_run(head), Policy(allow_different=["device"]))
    assert [c.verdict for c in document.cells] == ["broken", "not_comparable"]
    assert (document.verdict, document.exit_code) == ("broken", 5)


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
    for metric in ("score", "energy_j", "peak_mem_bytes", "utilisation", "TFLOPS"):
        with pytest.raises(BadInput, match="not known whether more of it is better"):
            Policy(metric=metric)


@pytest.mark.parametrize(
    ("metric", "work", "values", "verdict"),
    [
        ("tflops", "flops", (100, 120), "faster"), ("tflops", "flops", (120, 100), "slower"),
        ("gb_per_s", "min_bytes", (500, 600), "faster"), ("gb_per_s", "min_bytes", (600, 500), "slower"),
        ("time", None, (100, 120), "slower"), ("time", None, (120, 100), "faster"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("paired", [False, True])
def test_direction_of_better(
    write_run: WriteRun, metric: str, work: str | None, values: tuple[int, int], verdict: str, paired: bool
) -> None:
    """More TFLOP/s is an improvement, fewer a regression; the ratio stays that of the times."""
    amount = 10**12
    us = [amount / value if work else value for value in values]  # the unit of the rate cancels
    spread = [time / 100 for time in BASE]
    base, head = (
        make_record(medians_us=[time * s for s in factors], **({work: amount} if work else {}))
        for time, factors in zip(us, (spread, [time / 100 for time in times(1.0)]), strict=True)
    )
    document = judged(write_run, [base], [head], Policy(metric=metric, paired=paired))
    assert document.verdict == verdict
    assert document.cells[0].ratio == pytest.approx(us[1] / us[0], rel=0.005)


@pytest.mark.parametrize(("before", "after"), [(0, 0), (1000, 2000), (1000, 0)])
@pytest.mark.parametrize(("metric", "work"), [("tflops", "flops"), ("gb_per_s", "min_bytes")])
def test_rates_of_no_work_or_of_other_work_are_not_gated(
    write_run: WriteRun, metric: str, work: str, before: int, after: int
) -> None:
    """A copy has no FLOPs; a Run of other conventions counts other ones."""
    base, head = make_record(medians_us=BASE, **{work: before}), make_record(medians_us=times(1.0), **{work: after})
    document = judged(write_run, [base], [head], Policy(metric=metric, on_inconclusive="pass"))
    assert (document.verdict, document.exit_code) == ("inconclusive", 3)
    assert f"the same {work} on both sides, here {before} and {after}" in document.cells[0].reason
    assert judge(read_run(write_run("b", [base])), read_run(write_run("h", [head])), Policy()).verdict == "same"
