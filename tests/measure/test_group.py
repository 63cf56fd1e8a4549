"""What comes of a Group's kernels: statuses, samples, pairs; by a clock that doesn't measure."""

from pathlib import Path

import pytest

from andrea_bench import Problem
from andrea_bench.measure.clock import FakeClock
from andrea_bench.measure.group import measure_group
from andrea_bench.measure.task import Task
from andrea_bench.protocol import Protocol

STUBS = Path(__file__).parent / "stub_kernels.py"
SMALL = Problem(d_model=32, n_head=4, n_kv_head=2, seq_len=48)


def stub(name: str) -> tuple[str, str]:
    return "attention", f"{STUBS}:{name}"


def make_task(*members: tuple[str, str], problem: Problem = SMALL, **protocol: object) -> Task:
    chosen = Protocol(**{"min_samples": 6, "target": 0.5, **protocol})  # type: ignore[arg-type]
    return Task(
        suite="attention", problem=problem, members=list(members), device="cpu", device_name="cpu", protocol=chosen
    )


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("wrong_mask", "wrong", "relative error"),
        ("not_a_number", "wrong", "not finite"),
        ("changes_its_input", "wrong", "changes its input q in place"),
        ("changes_its_input_unseen", "wrong", "at its second call alone"),
        ("adds_to_what_it_left", "wrong", "at its second call alone"),
        ("wrong_later", "wrong", "right before it was timed, not after 10 samples: relative error"),
        ("out_of_memory", "out_of_memory", "RuntimeError"),
        ("cuda_out_of_memory", "out_of_memory", "OutOfMemoryError"),
        ("broken", "error", "RuntimeError: a compiler [/] crashed [red]here"),
        ("times_out", "timeout", "took too long"),
    ],
)
def test_a_failing_kernel_has_its_status_and_the_others_go_on(name: str, status: str, says: str) -> None:
    records = measure_group(make_task(stub("good"), stub(name), stub("prints")), FakeClock())
    assert [r.status for r in records] == ["ok", status, "ok"]
    failed = records[1]
    assert says in (failed.reason or "")
    assert failed.samples_us == failed.order == failed.block == failed.round == []
    assert failed.timing_mode is None
    assert len(records[0].samples_us) == len(records[2].samples_us) >= 6


def test_what_is_compared_after_the_samples_is_what_was_timed() -> None:
    # As a captured graph that replays something else than the call that was checked.
    clock = FakeClock()
    prepare = clock.prepare
    clock.prepare = lambda call: prepare(lambda: call() * 1.5)  # type: ignore[method-assign]
    (record,) = measure_group(make_task(stub("good")), clock)
    assert record.status == "wrong"
    assert (record.reason or "").startswith("right before it was timed, not after 10 samples: relative error")
    assert record.samples_us == []


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_asks_for_the_end_ends_the_sweep(error: type[BaseException]) -> None:
    def stop(member: int, stage: str) -> None:
        raise error

    with pytest.raises(error):
        measure_group(make_task(stub("good")), FakeClock(), heartbeat=stop)
    with pytest.raises(SystemExit):
        measure_group(make_task(stub("good"), stub("wants_out")), FakeClock())


def test_the_record_tells_alignment_and_computed_width() -> None:
    records = measure_group(
        make_task(("attention", "eager"), ("attention", "triton_padded"), problem=Problem(n_head=2, head_dim=65)),
        FakeClock(),
    )
    eager, padded = (record.counters for record in records)
    assert eager["alignment"].startswith("misaligned: head_dim 65 % 8 = 1")
    assert eager["computed_width"] is None
    assert eager["computed_width_reason"]
    assert padded["computed_width"] == 128
    assert records[1].status == "unsupported"


def test_samples_are_interleaved_and_paired() -> None:
    first, second = measure_group(make_task(stub("good"), stub("prints"), min_samples=40), FakeClock())
    assert first.round == second.round == list(range(len(first.round)))
    assert sorted(first.order + second.order) == list(range(2 * len(first.order)))
    # Each round has one sample of each, in an order that is shuffled anew.
    assert all({a // 2, b // 2} == {n} for n, (a, b) in enumerate(zip(first.order, second.order, strict=True)))
    leads = sum(a < b for a, b in zip(first.order, second.order, strict=True))
    assert 0 < leads < len(first.order)


def test_the_order_follows_from_the_seed() -> None:
    orders = [
        measure_group(make_task(stub("good"), stub("prints"), min_samples=40, seed=seed), FakeClock())[0].order
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("reading", [0.0, -1.0, float("nan")])
def test_a_timer_that_reads_nothing_is_an_error_not_a_division(reading: float) -> None:
    clock = FakeClock()
    clock.sample = lambda call: (reading, None)  # type: ignore[method-assign]
    (record,) = measure_group(make_task(stub("good")), clock)
    assert record.status == "error"
    assert "below the timer's resolution" in (record.reason or "")
    assert record.samples_us == []


def test_sampling_ends_at_the_time_limit_and_says_what_was_not_reached() -> None:
    # The fake clock's spread of 1 % can't give an interval of 0.001 %; a millisecond passes a sample.
    (record,) = measure_group(make_task(stub("good"), target=1e-5, time_limit_s=0.1), FakeClock())
    assert 95 <= len(record.samples_us) <= 110


@pytest.mark.parametrize("direction", ["forward", "backward", "forward_backward"])
def test_every_direction_is_checked(direction: str) -> None:
    problem = SMALL.replace(direction=direction)
    good, wrong = measure_group(make_task(stub("good"), stub("wrong_mask"), problem=problem), FakeClock())
    assert good.status == "ok"
    assert good.relative_error is not None
    assert good.tolerance is not None
    assert good.relative_error <= good.tolerance < 1e-5
    assert good.reference == "whole"
    assert wrong.status == "wrong"


def test_a_large_problem_is_checked_at_sampled_rows_and_heads() -> None:
    problem = Problem(d_model=16, n_head=2, n_kv_head=1, seq_len=3000, direction="forward_backward")
    good, wrong = measure_group(make_task(stub("good"), stub("wrong_mask"), problem=problem), FakeClock())
    assert good.status == "ok"
    assert "of 3000 query rows" in (good.reference or "")
    assert "gradients of 1 KV heads" in (good.reference or "")
    assert wrong.status == "wrong"
