"""The verb `claims`: what is measured decides, JSON and page."""

import json
from pathlib import Path

import pytest

from andrea_bench.claims.audit import audit
from andrea_bench.claims.finding import STATEMENTS
from andrea_bench.claims.plans import GRIDS, claims_plan
from andrea_bench.cli.main import main
from andrea_bench.hardware import find_gpu
from andrea_bench.problem import Problem
from andrea_bench.protocol import Protocol
from andrea_bench.record import Record

QUICK = ["claims", "--grid", "none", "--no-compile", "--training", "/nonexistent"]


def record(suite: str, op: str, kernel: str, problem: Problem, time_us: float) -> Record:
    return Record(cell_id=f"{kernel}{problem.label()}", suite=suite, op=op, kernel=kernel, problem=problem,
                  device="cpu", status="ok", samples_us=[time_us * f for f in (0.99, 1.0, 1.01) * 7],
                  timing_mode="host_wall", cache="warm", order=list(range(21)), block=[0] * 21,
                  round=list(range(21)), flops=problem.flops(), min_bytes=1,
                  started_at="2026-01-01T00:00:00Z")  # fmt: skip


def test_measured_times_decide_where_a_fused_projection_pays() -> None:
    records = []
    for seq_len, fused in ((16, 50.0), (128, 100.0), (1024, 120.0)):
        problem = Problem(seq_len=seq_len, d_model=768, n_head=12)
        records += [record("projection", "qkv_projection", "per_head_loop", problem, 100.0),
                    record("projection", "qkv_projection", "fused_qkv", problem, fused)]  # fmt: skip
    found = next(one for one in audit(records, [], [], None) if one.id == "fused-projection")
    assert [one.finding for one in found.evidence] == ["holds", "fails", "fails"]
    assert "no sure difference" in found.evidence[1].text and "no sure" not in found.evidence[2].text
    assert found.finding == "depends" and "forward with 12 heads surely faster at 16 tokens, not at 128, 1024" in (
        found.condition or ""
    )


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


@pytest.mark.parametrize("grid", GRIDS)
def test_grids_plan_every_statement_about_time(grid: str) -> None:
    plan = claims_plan(grid, "cpu", Protocol(time_limit_s=1.0))
    assert {group.suite.name for group in plan.groups} == {"projection", "layout", "attention"}
    assert plan.estimated_seconds() < 150 and not any(cell.status for cell in plan.cells())


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
