"""The verb `claims`: what is measured decides, JSON and page."""

import json
from pathlib import Path

import pytest

from andrea_bench.claims.audit import audit
from andrea_bench.claims.finding import STATEMENTS
from andrea_bench.claims.machine import Machine, machine_of
from andrea_bench.claims.measured import faster, not_slower, slower
from andrea_bench.claims.plans import claims_plan
from andrea_bench.cli.main import main
from andrea_bench.errors import BadInput
from andrea_bench.hardware import find_gpu
from andrea_bench.problem import Problem
from andrea_bench.protocol import Protocol
from andrea_bench.record import Record, RunHead, Validity

QUICK = ["claims", "--grid", "none", "--no-compile", "--training", "/nonexistent"]


def record(suite: str, op: str, kernel: str, problem: Problem, time_us: float, device: str = "cpu") -> Record:
    return Record(cell_id=f"{kernel}{problem.label()}", suite=suite, op=op, kernel=kernel, problem=problem,
                  device=device, status="ok", samples_us=[time_us * f for f in (0.99, 1.0, 1.01) * 7],
                  timing_mode="host_wall", cache="warm", order=list(range(21)), block=[0] * 21,
                  round=list(range(21)), flops=problem.flops(op), min_bytes=1,
                  started_at="2026-01-01T00:00:00Z")  # fmt: skip


def measured_on(records: list[Record], name: str) -> dict:
    machine = machine_of(RunHead(started_at="", environment={"device": "cuda", "gpu": {"name": name}}))
    return {one.id: one for one in audit(records, [], [], None, machine)}


def test_measured_times_decide_where_a_fused_projection_pays() -> None:
    records = []
    for seq_len, fused in ((16, 50.0), (128, 100.0), (1024, 120.0)):
        problem = Problem(seq_len=seq_len, d_model=768, n_head=12)
        records += [record("projection", "qkv_projection", "per_head_loop", problem, 100.0),
                    record("projection", "qkv_projection", "fused_qkv", problem, fused)]  # fmt: skip
    found = next(one for one in audit(records, [], [], None) if one.id == "fused-projection")
    assert [one.finding for one in found.evidence] == ["holds", "fails", "fails"]
    assert [one.text.split(": ")[1] for one in found.evidence] == [
        "surely less", "no sure difference, and no gain of 5%", "surely more",
    ]  # fmt: skip
    assert (
        found.finding == "depends"
        and "forward with 12 heads surely faster up to 16 tokens, not from 128 to 1024" in (found.condition or "")
    )


def test_an_interval_that_holds_a_gain_and_none_decides_nothing() -> None:
    assert faster(0.80, 0.90)[0] == "holds" and faster(1.01, 1.2) == ("fails", "surely more")
    assert faster(0.96, 1.01)[0] == "fails" and faster(0.90, 1.01) == ("not_testable_here", "too uncertain to tell")


def test_a_loss_that_may_be_or_not_decides_nothing_either() -> None:
    assert slower(1.01, 1.2) == ("holds", "surely more") and slower(0.8, 0.9) == ("fails", "surely less")
    assert slower(0.99, 1.04) == ("fails", "at most 5% more") and slower(0.99, 1.1)[0] == "not_testable_here"
    assert [not_slower(*one)[0] for one in ((1.01, 1.2), (0.99, 1.04), (0.99, 1.1))] == [
        "fails", "holds", "not_testable_here",
    ]  # fmt: skip


def test_contiguous_heads_count_the_copy_and_narrower_heads_their_time() -> None:
    problem = Problem(seq_len=64, d_model=768, n_head=12)
    times = {"qk_strided": 100.0, "qk_contiguous": 80.0, "qk_copy_then_contiguous": 130.0}
    records = [record("layout", "layout", kernel, problem, time_us) for kernel, time_us in times.items()]
    for n_head, time_us in ((12, 100.0), (6, 80.0), (24, 79.0)):
        split = Problem(seq_len=64, d_model=768, n_head=n_head)
        records.append(record("attention", "attention", "sdpa", split, time_us))
    found = {one.id: one for one in audit(records, [], [], None)}
    assert found["contiguous-heads"].finding == "depends"
    heads = [one for one in found["many-heads-not-one"].evidence if one.how == "measured"]
    assert [(one.numbers["ratio"], one.finding) for one in heads] == [
        (pytest.approx(1.25), "fails"), (pytest.approx(79 / 80), "holds"),
    ]  # fmt: skip


def test_near_peak_throughput_is_judged_on_absent_gpus() -> None:
    found = next(one for one in audit([], [find_gpu("h200_sxm")], [], None) if one.id == "fused-projection")
    shares = [one.numbers["share_of_peak"] for one in found.evidence]
    assert shares == sorted(shares) and shares[0] < 0.2 < 0.7 < shares[-1]
    assert [one.finding for one in found.evidence] == ["depends", "depends", "holds"]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("grid", ["small", "full"])
def test_grids_plan_every_statement_about_time(grid: str, device: str) -> None:
    plan = claims_plan(grid, device, Protocol(time_limit_s=1.0))
    assert {group.suite.name for group in plan.groups} == {"projection", "layout", "attention"}
    assert plan.estimated_seconds() < 150 and not any(cell.status for cell in plan.cells())
    # A Problem that a suite has twice would be measured once, without the second's kernels.
    assert len({(group.suite.name, group.problem) for group in plan.groups}) == len(plan.groups)


def test_the_grid_of_a_gpu_covers_tiles_in_every_dtype_and_both_grids() -> None:
    groups = [group for group in claims_plan("full", "cuda", Protocol()).groups if group.suite.name == "attention"]
    names = {(g.problem.dtype, g.problem.head_dim, name) for g in groups for _, name in g.members}
    for dtype in ("bfloat16", "float16", "tf32", "float32"):
        for head_dim in (32, 64, 72):
            assert {(dtype, head_dim, name) for name in ("sdpa", "sdpa_cudnn", "triton_exact")} <= names
    assert ("bfloat16", 72, "triton_padded") in names and ("bfloat16", 64, "triton_per_head_block") in names


def test_what_a_gpu_measured_is_judged_as_a_gpus() -> None:
    problem = Problem(batch=8, seq_len=1024, n_head=12, head_dim=64, dtype="bfloat16")
    at_32, at_72 = (Problem(batch=8, seq_len=1024, n_head=12, head_dim=d, dtype="bfloat16") for d in (32, 72))
    exact = [record("attention", "attention", "triton_exact", p, us, "cuda")
             for p, us in ((problem, 100.0), (at_32, 80.0), (at_72, 140.0))]  # fmt: skip
    blocks = record("attention", "attention", "triton_per_head_block", problem, 300.0, "cuda")
    chosen = [record("attention", "attention", "sdpa", p, 100.0, "cuda") for p in (problem, at_72)]
    chosen[0].selected_backend, chosen[1].selected_backend = "cudnn", "efficient"
    forced = record("attention", "attention", "sdpa_flash", problem, 90.0, "cuda")
    refused = record("attention", "attention", "sdpa_flash", at_72, 1.0, "cuda")
    refused.status, refused.samples_us, refused.reason = "unsupported", [], "No viable backend"
    found = measured_on([*exact, blocks, *chosen, forced, refused], "NVIDIA H200")
    tiles = {name: {e.on.split(",")[0]: e for e in found[name].evidence if e.how == "measured"}
             for name in ("tile-64", "tile-32", "tile-72")}  # fmt: skip
    # 80 us for half the work of 100 us: 1.6 times the time a FLOP.
    assert (
        tiles["tile-32"]["triton_exact"].finding == "holds" and "takes 1.60 (" in tiles["tile-32"]["triton_exact"].text
    )
    assert {name: e.finding for name, e in tiles["tile-72"].items()} == {
        "triton_exact": "fails", "sdpa": "holds", "sdpa_flash": "holds",
    }  # fmt: skip
    assert "another backend, efficient instead of cudnn" in tiles["tile-72"]["sdpa"].text
    share = tiles["tile-64"]["sdpa_flash"].numbers["share_of_peak"]
    assert share == pytest.approx(problem.flops("attention") / 90 / 1e6 / 989.4)
    assert all("NVIDIA H200, b8 s1024" in e.on for e in tiles["tile-64"].values())
    (grid,) = [e for e in found["one-kernel-many-heads"].evidence if e.how == "measured"]
    assert grid.finding == "fails" and grid.numbers["ratio"] == pytest.approx(3)


def test_a_gpus_fused_product_must_also_come_near_its_peak() -> None:
    problem = Problem(batch=8, seq_len=1024, d_model=768, n_head=12, dtype="bfloat16")
    at_peak_us = problem.flops("qkv_projection") / 989.4 / 1e6
    for share, finding in ((0.5, "depends"), (0.8, "holds")):
        times = {"fused_qkv": at_peak_us / share, "per_head_loop": 9 * at_peak_us}
        records = [record("projection", "qkv_projection", name, problem, us, "cuda") for name, us in times.items()]
        (one,) = measured_on(records, "NVIDIA H200")["fused-projection"].evidence
        assert one.finding == finding and one.numbers["share_of_peak"] == pytest.approx(share)


def test_a_rate_above_the_peak_counts_for_nothing() -> None:
    problem = Problem(batch=8, seq_len=1024, d_model=768, n_head=12, dtype="bfloat16")
    records = [record("projection", "qkv_projection", "fused_qkv", problem, 1.0, "cuda"),
               record("projection", "qkv_projection", "per_head_loop", problem, 90.0, "cuda")]  # fmt: skip
    assert measured_on(records, "NVIDIA H200")["fused-projection"].finding != "not_testable_here"
    records[0].validity = Validity(verdict="invalid", reasons=["implausible: above the peak"])
    assert measured_on(records, "NVIDIA H200")["fused-projection"].finding == "not_testable_here"


def test_records_of_two_devices_are_no_one_machines() -> None:
    problem = Problem(seq_len=16, n_head=2, head_dim=16)
    records = [record("attention", "attention", "sdpa", problem, 1.0, device) for device in ("cpu", "cuda")]
    with pytest.raises(BadInput, match="Records of cpu and cuda"):
        audit(records, [], [], None, Machine("both"))


def test_all_statements_have_a_finding_in_json_and_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "new folder" / "claims.md"
    assert main([*QUICK[:-2], "--gpu", "rtx_4090", "--json", "--markdown", str(page)]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert [one["id"] for one in document["claims"]] == list(STATEMENTS)
    outcomes = {one["id"]: one["finding"] for one in document["claims"]}
    assert outcomes["head-specialisation"] == outcomes["contiguous-heads"] == "not_testable_here"
    assert outcomes["five-steps"] == "holds" and outcomes["one-kernel-many-heads"] == "depends"
    assert all(f"## {name}: {outcome}" in page.read_text() for name, outcome in outcomes.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "rtx_4091"], "unknown GPU 'rtx_4091'"),
        (["--gpu", "sm_90"], "compiler target"),
        (["--gpu", ","], "names are missing"),
        (["--dtype", "fp7"], "unknown dtype 'fp7'"),
        (["--run", "/none"], "there is no such Run"),
        ([], "/nonexistent: can't be read"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err and captured.err.count("\n") == 1


def test_a_page_that_cannot_be_written_is_told_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("andrea_bench.cli.claims._records", None)  # what is called would end the test
    assert main([*QUICK, "--markdown", str(tmp_path / "file" / "page.md")]) == 2
    assert "file: can't be made: " in capsys.readouterr().err
    assert main([*QUICK, "--markdown", str(tmp_path)]) == 2
    assert "name a file" in capsys.readouterr().err
