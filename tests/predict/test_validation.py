"""The model against published figures: the accuracy that the project promises, and the page that shows it."""

import os
from pathlib import Path
from statistics import fmean

import pytest

from andrea_bench.errors import BadInput
from andrea_bench.predict.efficiency import efficiencies
from andrea_bench.predict.fit import leave_one_out
from andrea_bench.predict.published import Measured, by_head_dim, gemm_sweeps, is_target, published
from andrea_bench.predict.validation import (
    GEMM_DATA,
    errors_percent,
    fit_points,
    main,
    refitted,
    sections,
    steps,
)

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"


@pytest.fixture(scope="module")
def sweeps() -> list[Measured]:
    folder = os.environ.get(GEMM_DATA)
    if not folder:
        pytest.skip(f"{GEMM_DATA} names no folder with the measured matrix-product sweeps")
    return gemm_sweeps(Path(folder))


@pytest.mark.parametrize("kernel", ["flash_attention_2", "triton_tutorial"])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_attention_on_h100_within_20_percent(kernel: str, head_dim: int) -> None:
    figures = [
        one
        for one in published()
        if one.series.startswith(f"{kernel}, head_dim {head_dim}, ")
        and one.series.endswith("forward")
        and one.role == "fit"
    ]
    assert sum(is_target(one) for one in figures) == 10
    errors = errors_percent(figures)
    assert len(errors) == 2
    assert max(errors.values()) <= 20


def test_left_out_head_dims_stay_within_20_percent() -> None:
    found = {
        (one.family, one.left_out): one.error_percent
        for one in leave_one_out(fit_points(published()))
        if one.family in ("flash_attention_2", "triton_tutorial") and one.direction == "forward"
    }
    assert len(found) == 4
    assert max(found.values()) <= 20


def test_figures_that_nothing_was_fitted_on() -> None:
    # FlashAttention-2 at head_dim 256, and its forward and backward together.
    checked = [one for one in published() if one.role == "check" and one.series.startswith("flash_attention_2")]
    assert len(errors_percent(checked)) == 6
    assert max(errors_percent(checked).values()) <= 15


def test_matrix_products_on_a100_within_15_percent(sweeps: list[Measured]) -> None:
    a100 = [one for one in sweeps if one.predicted.gpu == "a100_sxm4_40gb"]
    assert sum(is_target(one) for one in a100) == 4 + 128
    assert max(errors_percent(a100).values()) <= 15


def test_tile_steps_are_in_the_right_places(sweeps: list[Measured]) -> None:
    series = [
        one for one in sweeps if one.predicted.gpu == "a100_sxm4_40gb" and one.series == "ksweep_low" and is_target(one)
    ]
    assert steps(series, predicted=False) == [264, 392]
    assert steps(series, predicted=True) == [264, 392]


def test_stored_efficiencies_are_the_fit() -> None:
    folder = os.environ.get(GEMM_DATA)
    figures = [*published(), *(gemm_sweeps(Path(folder)) if folder else [])]
    found = refitted(figures)
    assert found
    for key, fitted in found.items():
        stored = efficiencies()[key]
        assert stored.fitted
        for name in ("value", "low", "high"):
            assert getattr(stored, name) == pytest.approx(getattr(fitted, name), abs=0.0006), (key, name)
    if folder:
        assert set(found) == {key for key, one in efficiencies().items() if one.fitted}


def test_the_page_is_what_the_command_writes(sweeps: list[Measured], tmp_path: Path) -> None:
    page = tmp_path / "validation.md"
    assert main([str(page)]) == 0
    assert page.read_text() == PAGE.read_text()


def test_the_page_holds_what_needs_no_sweeps() -> None:
    made, text = sections(None), PAGE.read_text()
    for name in ("head", "attention", "by_head_dim", "matmul", "efficiencies"):
        assert made[name] in text
    assert GEMM_DATA in made["sweeps"]


def test_every_figure_has_a_source() -> None:
    assert all(len(one.source) > 10 for one in published())
    assert fmean(one.role == "check" for one in published()) > 0.3


def test_a_missing_sweep_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"m_sweep_a100\.csv"):
        gemm_sweeps(tmp_path)


def test_head_dims_that_no_fit_saw_are_predicted() -> None:
    # Measured on an H200 after the fit: forward of flash and cuDNN at nine head_dims, most of them in no fit.
    errors = errors_percent(by_head_dim())
    forward = {series.partition("|")[0]: error for (_, series), error in errors.items() if "forward" in series}
    for kernel in ("sdpa_flash", "sdpa_cudnn"):
        for mask in ("causal", "full"):
            assert forward[f"{kernel}, {mask}, forward"] < 15
    assert not any(one.role == "fit" for one in by_head_dim())
