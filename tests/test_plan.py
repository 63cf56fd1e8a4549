"""The Plan of a sweep: its cells, what is left out and why, time and memory."""

import json

import pytest

from andrea_bench.axes import AxisRequest
from andrea_bench.cli.main import main
from andrea_bench.cli.plan import parse_size
from andrea_bench.errors import BadInput
from andrea_bench.plan import START_S, fit, make_plan
from andrea_bench.protocol import Protocol
from andrea_bench.record import CellHasher, cell_id

GIB = 2**30


def request(**axes: list) -> AxisRequest:
    return AxisRequest(axes=axes)


def test_each_cell_once_with_a_stable_id() -> None:
    plan = make_plan(["attention", "alignment"], request(head_dim=[64, 72], n_head=[4], seq_len=[64]))
    cells = [document["cell_id"] for document in plan.documents()]
    assert len(cells) == len(set(cells))
    first = next(plan.cells())
    # Pinned: a Run measured today must join one measured next year.
    assert cell_id(first.suite, first.kernel.op, first.kernel.name, first.problem) == cells[0]
    assert CellHasher(first.problem).cell_id("attention", "attention", "eager") == "e1d0d8bbd3a1a418"


def test_an_unsupported_kernel_is_planned_with_its_reason() -> None:
    plan = make_plan(["attention"], request(dtype=["tf32"], seq_len=[64]))
    assert {(c.status, c.reason) for c in plan.cells() if c.kernel.name == "eager"} == {
        ("unsupported", "tf32 is a tensor-core format; a CPU has none")
    }
    assert all(cell.status == "unsupported" for cell in plan.cells())


def test_a_cell_that_cannot_fit_is_skipped_with_the_figures() -> None:
    # Scores of 65536 squared for 12 heads in float32: 206 GB, written out by eager alone.
    plan = make_plan(["attention"], request(seq_len=[65536]), memory_bytes=8 * GIB)
    by_name = {cell.kernel.name: cell for cell in plan.cells()}
    assert by_name["eager"].status == "skipped"
    assert "GiB; 8.0 GiB are free" in (by_name["eager"].reason or "")
    assert by_name["sdpa_flash"].status is None


def test_one_kernel_keeps_its_baseline() -> None:
    plan = make_plan(["projection"], request(seq_len=[32]), only_kernels=["fused_qkv"])
    assert {cell.kernel.name for cell in plan.cells()} == {"fused_qkv", "per_head_loop"}


def test_threads_are_an_axis_of_the_protocol() -> None:
    plan = make_plan(["output"], AxisRequest(axes={"seq_len": [32]}, threads=[1, 2]))
    assert [group.threads for group in plan.groups] == [1, 2]
    assert plan.estimated_seconds() > 2 * START_S * plan.protocol.processes  # each has processes of its own


def test_fit_finds_the_largest_batch() -> None:
    asked = request(seq_len=[1024])
    largest = fit(["attention"], asked, "batch", device="cpu", memory_bytes=8 * GIB, protocol=Protocol())
    assert not _skips(asked, largest)
    assert _skips(asked, largest + 1)
    with pytest.raises(BadInput, match="not even batch 1 fits"):
        fit(["attention"], asked, "batch", device="cpu", memory_bytes=2**20, protocol=Protocol())


def _skips(asked: AxisRequest, batch: int) -> bool:
    one = AxisRequest(axes={**asked.axes, "batch": [batch]})
    return any(c.status == "skipped" for c in make_plan(["attention"], one, memory_bytes=8 * GIB).cells())


def test_a_large_plan_is_shown_in_part_and_whole_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "output", "-a", "batch=1:100", "--kernel", "concat_matmul", "--memory", "8GiB"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    cells = json.loads(_json(arguments, capsys))["cells"]
    assert f"... and {len(cells) - 50} more" in shown
    assert f"output: {len(cells)} to be measured" in shown


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*arguments, "--json"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("text", "size"), [("24GiB", 24 * GIB), ("80 GB", 80 * 10**9), ("1.5MiB", 3 * 2**19)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["24", "many GiB", "GiB", "-1GB"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(BadInput, match="is no size"):
        parse_size(text)
