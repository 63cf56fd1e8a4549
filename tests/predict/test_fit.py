"""Refitting efficiencies from a Run, and what the fit is worth."""

import msgspec
import pytest

from andrea_bench.errors import BadInput
from andrea_bench.hardware import find_gpu
from andrea_bench.predict import cell, matmul
from andrea_bench.predict.efficiency import Efficiency, efficiencies, find_efficiency
from andrea_bench.predict.fit import Point, fit, fit_lines, fit_records, leave_one_out
from andrea_bench.problem import Problem
from andrea_bench.record import Record

GPU = find_gpu("h200_sxm")


def _record(head_dim: int, share: float, **changes: object) -> Record:
    """What a GPU would have measured that reaches `share` of the bound."""
    problem = Problem(batch=8, seq_len=2048, n_head=2048 // head_dim, head_dim=head_dim, dtype="bfloat16", causal=False)
    bound_us = cell(GPU, problem, op="attention", kernel="triton_exact").bound_us
    record = Record(
        cell_id="0",
        suite="attention",
        op="attention",
        kernel="triton_exact",
        problem=problem,
        device="cuda:0",
        status="ok",
        samples_us=[bound_us / share * noise for noise in (0.9, 1.0, 1.0, 1.3)],
        flops=problem.flops("attention"),
        min_bytes=problem.min_bytes("attention"),
        started_at="2026-01-01T00:00:00Z",
    )
    return msgspec.structs.replace(record, **changes)


def test_a_run_gives_back_the_efficiency_it_was_made_with() -> None:
    records = [_record(64, 0.6), _record(128, 0.6)]
    known, left_out = fit_records(records, GPU, "the Run here")
    efficiency = known["9.0", "triton", "forward"]
    assert efficiency.value == pytest.approx(0.6)
    assert efficiency.fitted
    assert (efficiency.least_head_dim, efficiency.most_head_dim) == (64, 128)
    predicted = cell(GPU, records[0].problem, op="attention", kernel="triton_exact", known=known)
    assert predicted.time_us == pytest.approx(predicted.bound_us / 0.6)
    assert "the Run here" in predicted.basis
    assert [one.left_out for one in left_out] == ["head_dim 64", "head_dim 128"]
    assert all(one.error_percent == pytest.approx(0, abs=1e-9) for one in left_out)


def test_left_out_head_dims_are_predicted_by_the_others() -> None:
    known, left_out = fit_records([_record(64, 0.4), _record(128, 0.5)], GPU, "a Run")
    assert "triton forward without head_dim 64: off by 20.0 % on its 1 points" in fit_lines(known, left_out)
    errors = {one.left_out: one.error_percent for one in left_out}
    # 64 by 0.5 takes 0.4/0.5 of its time; 128 by 0.4 takes 0.5/0.4.
    assert errors == {"head_dim 64": pytest.approx(20), "head_dim 128": pytest.approx(25)}


def test_gpus_go_before_head_dims() -> None:
    key = ("9.0", "triton", "forward")
    points = [
        Point(key=key, reachable_us=1, time_us=time_us, gpu=gpu, head_dim=head_dim)
        for gpu, time_us in {"h100_sxm5_80gb": 2.0, "h200_sxm": 2.5}.items()
        for head_dim in (64, 128)
    ]
    assert {one.left_out for one in leave_one_out(points)} == {"h100_sxm5_80gb", "h200_sxm"}
    assert leave_one_out(points[:1]) == []
    assert "nothing to leave out" in fit_lines({}, [])[-1]


def test_records_that_say_nothing_are_passed_over() -> None:
    good = _record(64, 0.5)
    useless = [
        _record(64, 0.1, device="cpu"),
        _record(64, 0.1, status="wrong", samples_us=[]),
        _record(64, 0.1, kernel="mine.py:attention"),
        _record(64, 0.1, kernel="eager"),
        _record(64, 0.1, problem=good.problem.replace(head_dim=300)),
    ]
    known, _ = fit_records([good, *useless], GPU, "a Run")
    assert {key: one.value for key, one in known.items()} == {("9.0", "triton", "forward"): pytest.approx(0.5)}
    with pytest.raises(BadInput, match="none of 5 records"):
        fit_records(useless, GPU, "a Run")


def test_a_gpu_that_beats_its_stated_peak_is_never_predicted_to() -> None:
    key = ("8.9", "matmul", "forward")
    known = fit([Point(key=key, reachable_us=1.1, time_us=1.0, gpu="rtx_4090")], "x")
    assert known[key].value == pytest.approx(1.1)
    predicted = matmul("rtx_4090", m=8192, n=8192, k=8192, dtype="bfloat16", known=known)
    assert predicted.time_us == predicted.low_us == predicted.bound_us
    absurd = fit([Point(key=key, reachable_us=9.0, time_us=1.0, gpu="rtx_4090")], "x")
    assert absurd[key].value == 1.2


def test_the_nearest_architecture_stands_in() -> None:
    # Ada and consumer Blackwell have Ampere's matrix instructions, not Hopper's.
    assert find_efficiency("8.9", "triton", "forward").compute_capability == "8.6"
    assert find_efficiency("12.0", "flash_attention_2", "forward").compute_capability == "8.6"
    assert find_efficiency("12.0", "matmul", "forward").outside == ()
    backward = find_efficiency("9.0", "triton_tutorial", "backward")
    assert any("backward" in reason for reason in backward.outside)


def test_every_efficiency_has_a_source_and_a_range() -> None:
    for efficiency in efficiencies().values():
        assert len(efficiency.source) > 10
        assert 0 < efficiency.low <= efficiency.value <= efficiency.high <= 1.2
        assert ("prior" in efficiency.basis) != efficiency.fitted


def test_a_range_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="no range"):
        Efficiency(compute_capability="9.0", family="x", value=0.5, low=0.6, high=0.7, fitted=False, source="nothing")


def test_known_efficiencies_reach_matrix_products() -> None:
    key = ("9.0", "matmul", "forward")
    mine = msgspec.structs.replace(efficiencies()[key], value=0.5, low=0.4, high=0.6, source="my own GPU")
    predicted = matmul("h200_sxm", m=8192, n=8192, k=8192, dtype="bfloat16", known={key: mine})
    assert predicted.time_us == pytest.approx(2 * predicted.bound_us)
    assert "my own GPU" in predicted.basis
