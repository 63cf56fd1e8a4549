"""The time of matrix products: tiles, waves, rows, and what is refused."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_bench.errors import BadInput, Unsupported
from andrea_bench.hardware import gpus
from andrea_bench.predict import matmul

A100 = "a100_sxm4_40gb"


def test_one_round_of_tiles_by_hand() -> None:
    # 27648 = 108 x 256 rows: with 256 columns exactly two tiles of 256 x 128 for each of the 108 SMs.
    predicted = matmul(A100, m=27648, n=256, k=4096, dtype="float16")
    tensor_us = 2 * 27648 * 256 * 4096 / 311.9e6
    assert predicted.tile == (256, 128)
    assert predicted.waves == 2
    assert predicted.tail_efficiency == 1
    assert predicted.bound_by == "tensor"
    assert predicted.parts_us["tensor"] == pytest.approx(tensor_us, rel=1e-9)
    dram_us = 2 * (27648 * 4096 + 4096 * 256 + 27648 * 256) / 1555e3
    assert predicted.parts_us["dram"] == pytest.approx(dram_us, rel=1e-9)
    assert predicted.waste == 0


def test_a_column_more_costs_a_column_of_tiles() -> None:
    at = {n: matmul(A100, m=27648, n=n, k=4096, dtype="float16") for n in (256, 264, 384, 392)}
    assert at[264].bound_us / at[256].bound_us == pytest.approx(1.5, rel=0.01)
    assert at[384].bound_us == pytest.approx(at[264].bound_us, rel=1e-9)
    assert at[392].bound_us / at[384].bound_us == pytest.approx(4 / 3, rel=0.01)
    assert at[264].waste == pytest.approx(1 - 264 / 384)


def test_one_tile_more_than_sms_costs_a_wave() -> None:
    # 108 SMs: a 109th row of tiles needs a third wave of 256 x 128, or a fifth of 128 x 128 after four.
    fits, over = (matmul(A100, m=rows * 256, n=256, k=4096, dtype="float16") for rows in (108, 109))
    assert fits.tail_efficiency == 1
    assert over.tile == (128, 128)
    assert over.bound_us / fits.bound_us == pytest.approx(5 / 4, rel=0.01)
    assert over.tail_efficiency == pytest.approx(436 / (5 * 108))


def test_few_columns_are_bound_by_memory() -> None:
    predicted = matmul(A100, m=27648, n=64, k=4096, dtype="float16")
    assert predicted.bound_by == "dram"


def test_what_fits_the_l2_needs_no_dram() -> None:
    predicted = matmul("h200_sxm", m=1024, n=1024, k=1024, dtype="bfloat16")
    assert predicted.parts_us["dram"] == 0


def test_rows_off_16_bytes_run_other_kernels() -> None:
    aligned = matmul(A100, m=27648, n=264, k=4096, dtype="float16")
    odd = matmul(A100, m=27648, n=262, k=4096, dtype="float16")
    assert odd.time_us > 1.3 * aligned.time_us
    assert "matmul_misaligned" in odd.basis
    # 262 floats are 1048 bytes, no multiple of 16; 264 are.
    assert "misaligned" not in matmul(A100, m=27648, n=264, k=4096, dtype="tf32").basis


def test_tiny_products_are_bound_by_the_launch() -> None:
    predicted = matmul("h200_sxm", m=16, n=16, k=16, dtype="float16")
    assert predicted.bound_by == "launch"
    assert predicted.time_us == 6.1
    assert any("host" in reason for reason in predicted.outside)


def test_float32_runs_on_no_tensor_core() -> None:
    predicted = matmul("rtx_4090", m=4096, n=4096, k=4096, dtype="float32")
    assert predicted.bound_by == "fma"
    assert predicted.bound_us == pytest.approx(2 * 4096**3 / 82.6e6, rel=0.05)


def test_half_rate_cards_take_twice_as_long() -> None:
    times = {name: matmul(name, m=8192, n=8192, k=8192, dtype="float16") for name in ("rtx_4090", "l40s")}
    assert 2 < times["rtx_4090"].bound_us / times["l40s"].bound_us < 2.5


def test_power_limited_boards_say_so() -> None:
    predicted = matmul("l4", m=8192, n=8192, k=8192, dtype="bfloat16")
    assert any("power-limited" in reason for reason in predicted.outside)
    # Measured by users: 70.9 TFLOP/s.
    assert predicted.tflops == pytest.approx(70.9, rel=0.1)


@given(
    gpu=st.sampled_from(sorted(gpus())),
    m=st.integers(1, 5000),
    n=st.integers(1, 5000),
    k=st.integers(1, 5000),
    batch=st.integers(1, 64),
)
def test_bounds_and_intervals_are_in_order(gpu: str, m: int, n: int, k: int, batch: int) -> None:
    one = matmul(gpu, m=m, n=n, k=k, batch=batch, dtype="float16")
    assert 0 < one.bound_us <= one.low_us <= one.time_us <= one.high_us
    assert one.bound_us >= max(one.parts_us.values())
    assert one.tflops * one.time_us * 1e6 == pytest.approx(2 * batch * m * n * k)
    assert one.waste is not None
    assert 0 <= one.waste < 1
    # Nothing is faster than the stated peak.
    peak = gpus()[gpu].fp16_fp32acc_dense_tflops
    assert peak is not None
    assert one.tflops <= peak * (1 + 1e-9)
    assert matmul(gpu, m=m, n=n, k=2 * k, batch=batch, dtype="float16").bound_us >= one.bound_us


@given(m=st.integers(1, 10**4), n=st.integers(1, 10**4))
def test_waves_count_the_tiles(m: int, n: int) -> None:
    one = matmul("h200_sxm", m=m, n=n, k=512, dtype="float16")
    assert one.tile is not None
    assert one.waves == pytest.approx(ceil(m / one.tile[0]) * ceil(n / one.tile[1]) / 132)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"gpu": "h200"}, BadInput, "h200_sxm"),
        ({"gpu": "sm_90"}, BadInput, "compiler target"),
        ({"dtype": "fp64"}, BadInput, "unknown dtype"),
        ({"m": 0}, BadInput, "m 0"),
        ({"k": 2.5}, BadInput, "k 2.5"),
        ({"m": 2**41}, BadInput, "1099511627776"),
        ({"m": 2**40, "n": 2**40, "k": 2**40}, Unsupported, "GB"),
        ({"gpu": "t4", "dtype": "bfloat16"}, Unsupported, "bfloat16"),
        ({"gpu": "v100_pcie", "dtype": "tf32"}, Unsupported, "tf32"),
    ],
)
def test_what_is_refused(changes: dict[str, object], error: type[Exception], says: str) -> None:
    sizes: dict[str, object] = {"m": 64, "n": 64, "k": 64, "dtype": "float16", **changes}
    with pytest.raises(error, match=says):
        matmul(sizes.pop("gpu", "h200_sxm"), **sizes)  # type: ignore[arg-type]
