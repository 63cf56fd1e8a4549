"""Trying tile sizes: the fastest right one wins; wrong and broken ones have a reason."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from andrea_bench import Problem
from andrea_bench.cli.main import main
from andrea_bench.errors import EnvironmentUnfit
from andrea_bench.kernel import Candidate, Kernel, Work
from andrea_bench.measure.autotune import autotune, best, compute_capability
from andrea_bench.plan import Cell, Group, Plan
from andrea_bench.protocol import Protocol
from andrea_bench.suite import find_suite

IN_USE = ["table"]


def candidate(row: str) -> Candidate:
    @contextmanager
    def use() -> Iterator[None]:
        IN_USE.append(row)
        try:
            yield
        finally:
            IN_USE.pop()

    return Candidate(part=None, key=(90, 64), row=row, use=use)


def prepare(problem, inputs) -> Work:  # type: ignore[no-untyped-def]
    if IN_USE[-1] == "too large":
        raise RuntimeError("out of resource: shared memory")
    q, k, v = (inputs[name] for name in "qkv")
    causal = problem.causal and IN_USE[-1] != "wrong"
    return Work(run=lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal))


class RowClock:
    """Reads the number that the row in use says."""

    timing_mode = "host_wall"

    def prepare(self, call):  # type: ignore[no-untyped-def]
        return call

    def sample(self, call) -> tuple[float, None]:  # type: ignore[no-untyped-def]
        return float(IN_USE[-1]), None

    def now(self) -> float:
        return 0.0


def test_the_fastest_right_candidate_is_named() -> None:
    rows = ["30", "wrong", "10", "too large", "20"]
    kernel = Kernel(
        op="attention",
        name="tiled",
        prepare=prepare,
        candidates=lambda problem, capability: [candidate(r) for r in rows],
    )
    problem = Problem(d_model=32, n_head=2, seq_len=24)
    group = Group(find_suite("attention"), problem, 1, [Cell("attention", problem, kernel)])
    trials = list(autotune(Plan("cpu", Protocol(), [group]), RowClock(), "9.0"))
    assert [t.row for t in trials] == rows
    assert "wrong: relative error" in (trials[1].reason or "")
    assert "shared memory" in (trials[3].reason or "")
    assert [(t.row, t.median_us) for t in best(trials)] == [("10", 10.0)]
    assert IN_USE == ["table"]


def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(EnvironmentUnfit, match="there is none here"):
        compute_capability("cpu")


def test_a_plan_without_tiles_to_try_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("andrea_bench.measure.autotune.compute_capability", lambda device: "9.0")
    assert main(["sweep", "output", "-a", "n_head=2", "-a", "head_dim=16", "--device", "cpu", "--autotune"]) == 4
    assert "no kernel of this plan has tiles to try" in capsys.readouterr().err
