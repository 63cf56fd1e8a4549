"""What `--measure` plans, how a Run's parts make a layer, and a refit of the model."""

import json
from pathlib import Path

import pytest

from andrea_bench.axes import AxisRequest
from andrea_bench.cli.main import main
from andrea_bench.errors import BadInput
from andrea_bench.explore.choice import choice
from andrea_bench.explore.measured import add_measurements, splits_plan
from andrea_bench.explore.splits import candidates
from andrea_bench.predict import cell
from andrea_bench.problem import Problem
from andrea_bench.protocol import Protocol
from andrea_bench.record import Record, RunHead, Validity
from andrea_bench.store import RunWriter


def record(op: str, kernel: str, problem: Problem, time_us: float, **fields: object) -> Record:
    return Record(cell_id=f"{op}{kernel}{problem.label()}", suite=op, op=op, kernel=kernel, problem=problem,
                  device="cuda", flops=problem.flops(op), min_bytes=1, started_at="2026-01-01T00:00:00Z",
                  **{"status": "ok", "samples_us": [time_us] * 21, "timing_mode": "cuda_event", "cache": "warm",
                     "order": list(range(21)), "block": [0] * 21, "round": list(range(21)), **fields})  # type: ignore[arg-type]  # fmt: skip


def test_every_usual_split_is_measured_as_one_gpu_computes_it() -> None:
    found = candidates(AxisRequest(iso={"d_model": 768}, axes={"seq_len": [64]}), device="cpu")
    plan = splits_plan(found, [1, 2], "sdpa", "cpu", Protocol())
    splits = {(g.problem.n_head, g.problem.head_dim) for g in plan.groups}
    assert {(12, 64), (6, 64), (3, 256), (48, 16)} <= splits and not any(width > 256 for _, width in splits)
    assert all(g.problem.d_model == 768 and g.problem.dtype == "float32" for g in plan.groups)
    kernels = {member for g in plan.groups if g.problem.n_head == 12 for member in g.members}
    assert {("layer", "five_steps_strided"), ("attention", "sdpa"), ("qkv_projection", "fused_qkv"),
            ("output_projection", "strided_matmul")} <= kernels  # fmt: skip


def test_a_width_without_usual_heads_is_refused() -> None:
    found = candidates(AxisRequest(iso={"d_model": 7}), device="cpu")
    with pytest.raises(BadInput, match="no split to measure"):
        splits_plan(found, [1], "sdpa", "cpu", Protocol())


def test_measured_parts_add_up_where_the_layer_was_not_measured() -> None:
    problem = Problem(d_model=768, n_head=12, n_layer=12)
    one = choice(problem)
    parts = [("qkv_projection", "fused_qkv", 30.0), ("attention", "triton_exact", 50.0)]
    add_measurements([one], [record(op, kernel, problem, us) for op, kernel, us in parts], "triton_exact", None)
    assert one.layer is None
    parts.append(("output_projection", "strided_matmul", 20.0))
    count = add_measurements([one], [record(op, k, problem, us) for op, k, us in parts], "triton_exact", None)
    assert count == 3 and one.layer is not None and one.layer.time_us == pytest.approx(100.0)
    assert one.tokens_per_s == pytest.approx(1024 / (12 * 100.0) * 1e6)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": "out_of_memory", "reason": "needs 9 GB", "samples_us": []}, "out_of_memory: needs 9 GB"),
        ({"validity": {"verdict": "invalid", "reasons": ["clock fell"]}}, "clock fell"),
        ({"status": "throttled", "reason": "hot"}, "throttled: hot"),
    ],
)
def test_records_that_do_not_count_are_reasons_not_zeros(fields: dict, reason: str) -> None:
    import msgspec

    if "validity" in fields:
        fields = {"validity": msgspec.convert(fields["validity"], Validity)}
    problem = Problem(d_model=768, n_head=12)
    one = choice(problem)
    add_measurements([one], [record("layer", "five_steps_strided", problem, 100.0, **fields)], "sdpa", None)
    assert one.reason == f"layer measured: {reason}"


def test_times_in_doubt_are_marked_wherever_they_are_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Of two splits one was timed while the machine was busy: its row, the sentences on it, and the JSON say so."""
    reasons = ["other processes kept 1.14 of 2 CPUs busy"]
    quiet, busy = (Problem(batch=8, d_model=768, n_head=n, dtype="bfloat16") for n in (6, 12))
    run = RunHead(started_at="2026-01-01T00:00:00Z", environment={"gpu": {"name": "NVIDIA GeForce RTX 4090"}})
    with RunWriter.create(tmp_path / "run", run) as writer:
        writer.append([
            record("layer", "five_steps_strided", quiet, 1000.0),
            record("layer", "five_steps_strided", busy, 1500.0, validity=Validity(verdict="suspect", reasons=reasons)),
        ])  # fmt: skip
    arguments = ["explore", "--run", str(tmp_path / "run"), "--iso", "d_model=768", "-a", "batch=8", "--own", "12x64",
                 "--where", "n_head == 6 or n_head == 12"]  # fmt: skip
    assert main(arguments) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "2! 12 x 64 1500" in told and "1* 6 x 128 1000" in told
    assert "! measured, and in doubt: other processes kept 1.14 of 2 CPUs busy" in told
    assert "12 x 64 takes 1.50 (1.50 to 1.50) of the layer time of the best, 6 x 128, measured !" in told
    assert main([*arguments, "--json"]) == 0
    (setting,) = json.loads(capsys.readouterr().out)["settings"]
    doubts = {one["split"]: one["layer"]["doubts"] for one in setting["choices"] if one["layer"]}
    assert doubts["12 x 64"] == reasons and doubts["6 x 128"] == []
    assert setting["sentences"][0]["doubts"] == reasons


def test_measured_energy_goes_before_the_boards_limit() -> None:
    problem = Problem(d_model=768, n_head=12)
    one = choice(problem)
    counters = {"gpu_energy_per_call": {"joules_per_call": 0.25, "relative_error_bound": 0.04}}
    add_measurements([one], [record("layer", "five_steps_strided", problem, 100.0, counters=counters)], "sdpa", None)
    assert (one.energy_joules, one.energy_how, one.energy_relative_error) == (0.25, "measured", 0.04)


def test_a_refit_moves_the_level_and_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = RunHead(started_at="2026-01-01T00:00:00Z", arguments=[], protocol={}, seed=1,
                   environment={"gpu": {"name": "NVIDIA GeForce RTX 4090"}})  # fmt: skip
    problems = [Problem(batch=8, d_model=768, n_head=n, dtype="bfloat16") for n in (6, 8, 12, 24)]
    reached = {p: cell("rtx_4090", p, op="attention", kernel="sdpa").reachable_us for p in problems}
    with RunWriter.create(tmp_path / "run", head) as writer:
        writer.append([record("attention", "sdpa", p, reached[p] / 0.5) for p in problems])
    asked = ["explore", "--gpu", "rtx_4090", "--iso", "d_model=768", "-a", "batch=8", "--where", "6 <= n_head <= 24"]
    assert main([*asked, "--fit-from", str(tmp_path / "run"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert any("efficiency 0.50 of flash_attention_2" in line for line in document["fit"])
    assert any("off by 0.0 %" in line for line in document["fit"])
    twelve = next(one for one in document["settings"][0]["choices"] if one["split"] == "12 x 64")
    assert twelve["attention"]["time_us"] == pytest.approx(reached[problems[2]] / 0.5)
