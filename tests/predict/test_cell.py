"""The time of attention and of the layer around it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_bench.errors import BadInput, Unsupported
from andrea_bench.hardware import gpus
from andrea_bench.predict import Prediction, cell, predicted_kernels, ratio
from andrea_bench.predict.published import published
from andrea_bench.problem import OPS, Problem

ANDREA = Problem(batch=8, seq_len=1024, n_head=12, head_dim=64, dtype="bfloat16")


def _attention(gpu: str, kernel: str, problem: Problem = ANDREA, **changes: object) -> Prediction:
    return cell(gpu, problem.replace(**changes), op="attention", kernel=kernel)


def _wide(head_dim: int) -> Problem:
    """Long and full, 2048 wide, so that only the units of an SM count."""
    return Problem(batch=4, seq_len=4096, n_head=2048 // head_dim, head_dim=head_dim, dtype="float16", causal=False)


def test_exp_binds_narrow_heads_on_hopper_only() -> None:
    # 16 ex2 a clock and SM: at head_dim 32 Hopper does half its peak at most, 495 of 989 TFLOP/s.
    hopper = cell("h100_sxm5_80gb", _wide(32), op="attention", kernel="triton_tutorial")
    assert hopper.bound_by == "exp"
    assert hopper.bound_us >= _wide(32).flops("attention") / 495e6
    assert hopper.parts_us["tensor"] == pytest.approx(hopper.parts_us["exp"] / 2, rel=0.01)
    assert cell("rtx_4090", _wide(32), op="attention", kernel="triton_tutorial").bound_by == "tensor"
    assert cell("h100_sxm5_80gb", _wide(128), op="attention", kernel="triton_tutorial").bound_by == "tensor"
    # B200 doubles the tensor rate and not the exp rate.
    assert cell("b200", _wide(64), op="attention", kernel="triton_tutorial").bound_by == "exp"


@pytest.mark.parametrize(
    ("kernel", "head_dim", "width"),
    [
        ("sdpa_flash", 72, 96),
        ("sdpa_flash", 64, 64),
        ("sdpa_flash", 100, 128),
        ("flash_attention_3", 32, 64),
        ("sdpa_efficient", 72, 128),
        ("flex", 72, 128),
        ("triton_exact", 72, 80),
        ("triton_exact", 64, 64),
        ("triton_exact", 240, 256),
        ("triton_padded", 72, 128),
        ("triton_padded", 8, 16),
    ],
)
def test_computed_width(kernel: str, head_dim: int, width: int) -> None:
    found = cell("h100_sxm5_80gb", _wide(64).replace(head_dim=head_dim), op="attention", kernel=kernel)
    assert found.computed_width == width
    assert found.waste is not None
    # Full attention over whole tiles: nothing but width is wasted (192-row tiles apart).
    if kernel != "flash_attention_3":
        assert found.waste == pytest.approx(1 - head_dim / width)


def test_the_padded_kernel_costs_its_width() -> None:
    exact, padded = (
        _attention("rtx_4090", kernel, _wide(64), head_dim=72) for kernel in ("triton_exact", "triton_padded")
    )
    assert padded.bound_us / exact.bound_us == pytest.approx(128 / 80, rel=0.02)


def test_causal_counts_the_tiles_that_are_visited() -> None:
    # 8 query tiles of 128 and key tiles of 64: 2 + 4 + ... + 16 of 128 pairs, where half would be 64.
    full, causal = (_attention("h200_sxm", "triton_tutorial", batch=64, causal=c) for c in (False, True))
    assert causal.parts_us["tensor"] / full.parts_us["tensor"] == pytest.approx(72 / 128, rel=0.02)
    assert causal.waste == pytest.approx(1 - 64 / 72)


def test_bottom_right_alignment_sees_the_cached_keys() -> None:
    # One tile of queries at the end of 4096 keys sees all of them.
    causal, full = (
        _attention("h200_sxm", "triton_tutorial", batch=64, seq_len=128, kv_len=4096, causal=c) for c in (True, False)
    )
    assert causal.parts_us["tensor"] == pytest.approx(full.parts_us["tensor"])
    # Keys that end before the queries do: early queries see one tile at least, and nothing breaks.
    assert _attention("h200_sxm", "triton_tutorial", kv_len=64).bound_us > 0


def test_a_block_per_head_leaves_sms_idle() -> None:
    tiled = _attention("h200_sxm", "triton_exact", batch=1, causal=False)
    per_head = _attention("h200_sxm", "triton_per_head_block", batch=1, causal=False)
    assert tiled.tile is not None
    query_tiles = 1024 // tiled.tile[0]
    assert tiled.waves == pytest.approx(12 * query_tiles / 132)
    assert per_head.waves == pytest.approx(12 / 132)
    # The busiest SM has two of the tiles where there are more than SMs.
    rounds = -(-12 * query_tiles // 132)
    assert per_head.bound_us == pytest.approx(query_tiles / rounds * tiled.bound_us, rel=0.15)
    assert any("132 SMs" in reason for reason in per_head.outside)


def test_causal_blocks_of_one_head_are_unequal() -> None:
    # 96 blocks on 132 SMs: all wait for the longest, while most SMs did less.
    one = _attention("h200_sxm", "triton_tutorial", batch=1)
    assert one.tail_efficiency == pytest.approx(12 * 72 / (132 * 16))


def test_backward_does_five_products_or_seven() -> None:
    forward = _attention("h100_sxm5_80gb", "sdpa_flash", _wide(128))
    backward = _attention("h100_sxm5_80gb", "sdpa_flash", _wide(128), direction="backward")
    assert backward.parts_us["tensor"] == pytest.approx(2.5 * forward.parts_us["tensor"])
    both = _attention("h100_sxm5_80gb", "sdpa_flash", _wide(128), direction="forward_backward")
    assert both.time_us == pytest.approx(forward.time_us + backward.time_us)
    split = _attention("h100_sxm5_80gb", "triton_exact", _wide(128), direction="backward")
    assert split.parts_us["tensor"] == pytest.approx(3.5 * split_forward_tensor(), rel=0.01)


def split_forward_tensor() -> float:
    return _attention("h100_sxm5_80gb", "triton_exact", _wide(128)).parts_us["tensor"]


def test_materialised_scores_are_bound_by_memory() -> None:
    eager = _attention("h100_sxm5_80gb", "eager", _wide(64))
    assert eager.bound_by == "dram"
    assert eager.launches == 3
    assert eager.time_us > 2 * _attention("h100_sxm5_80gb", "sdpa_flash", _wide(64)).time_us


def test_decoding_reads_the_cache_once() -> None:
    problem = Problem(
        batch=64, seq_len=1, kv_len=8192, n_head=32, n_kv_head=8, head_dim=128, dtype="bfloat16", direction="decode"
    )
    found = cell("h200_sxm", problem, op="attention", kernel="triton_decode")
    cache_bytes = 64 * 8192 * 8 * 128 * 2 * 2
    assert found.bound_by == "dram"
    assert found.bound_us == pytest.approx(cache_bytes / 4800e3, rel=0.01)
    with pytest.raises(Unsupported, match="decode"):
        cell("h200_sxm", ANDREA, op="attention", kernel="triton_decode")


def test_per_head_products_launch_more_and_waste_tiles() -> None:
    fused, loop = (
        cell("h200_sxm", ANDREA, op="qkv_projection", kernel=kernel) for kernel in ("fused_qkv", "per_head_loop")
    )
    assert (fused.launches, loop.launches) == (1, 36)
    assert loop.time_us > 2 * fused.time_us
    flops = ANDREA.flops("qkv_projection")
    for one in (fused, loop):
        assert one.tflops * one.time_us * 1e6 == pytest.approx(flops)
    # X (12.6 MB) stays in the L2 of 60 MiB: re-reading it per head costs no DRAM.
    assert loop.parts_us["dram"] == 0


def test_a_layer_is_the_sum_of_its_stages() -> None:
    layer = cell("h200_sxm", ANDREA, op="layer", kernel="sdpa_flash")
    parts = [
        cell("h200_sxm", ANDREA, op="qkv_projection", kernel="fused_qkv"),
        cell("h200_sxm", ANDREA, op="attention", kernel="sdpa_flash"),
        cell("h200_sxm", ANDREA, op="output_projection", kernel="strided_matmul"),
    ]
    assert layer.time_us == pytest.approx(sum(part.time_us for part in parts))
    assert layer.low_us == pytest.approx(sum(part.low_us for part in parts))
    assert layer.tflops * layer.time_us * 1e6 == pytest.approx(ANDREA.flops("layer"))


@given(
    gpu=st.sampled_from(sorted(gpus())),
    kernel=st.sampled_from(["sdpa_flash", "triton_exact", "triton_padded", "flex", "eager"]),
    batch=st.integers(1, 64),
    n_head=st.integers(1, 48),
    head_dim=st.integers(1, 256),
    seq_len=st.integers(1, 3000),
    causal=st.booleans(),
    direction=st.sampled_from(["forward", "backward", "forward_backward"]),
)
def test_bounds_and_intervals_are_in_order(gpu: str, kernel: str, direction: str, **sizes: int) -> None:
    problem = Problem(dtype="float16", direction=direction, **sizes)  # type: ignore[arg-type]
    try:
        one = cell(gpu, problem, op="attention", kernel=kernel)
    except Unsupported as error:
        assert "GB" in str(error) or (kernel.startswith("triton") and "8.0 or newer" in str(error))  # noqa: PT017
        return
    assert 0 < one.bound_us <= one.low_us * (1 + 1e-9)
    assert one.low_us <= one.time_us <= one.high_us
    assert one.tflops * one.time_us * 1e6 == pytest.approx(problem.flops("attention"))
    if one.tail_efficiency is not None:
        assert 0 < one.tail_efficiency <= 1 + 1e-9


def test_absurd_sizes_answer_at_once() -> None:
    with pytest.raises(Unsupported, match="GB"):
        _attention("h200_sxm", "triton_exact", seq_len=2**40, kv_len=2**40)
    long = Problem(seq_len=2**24, n_head=1, head_dim=64, dtype="float16")
    found = cell("h200_sxm", long, op="attention", kernel="triton_exact")
    assert found.parts_us["tensor"] * 0.9 < long.flops("attention") / 989.4e6 < found.parts_us["tensor"] * 1.1
    with pytest.raises(Unsupported, match="GB"):
        cell("h200_sxm", long, op="attention", kernel="eager")


@pytest.mark.parametrize(
    ("gpu", "op", "kernel", "changes", "error", "says"),
    [
        ("rtx4090", "attention", "sdpa_flash", {}, BadInput, "rtx_4090"),
        ("sm_90", "attention", "sdpa_flash", {}, BadInput, "compiler target"),
        ("b200", "attention", "spda_flash", {}, BadInput, "sdpa_flash"),
        ("b200", "projection", "fused_qkv", {}, BadInput, "qkv_projection"),
        ("t4", "attention", "sdpa_flash", {}, Unsupported, "bfloat16"),
        ("b200", "attention", "sdpa_flash", {"head_dim": 264}, Unsupported, "256"),
        ("b200", "attention", "sdpa_efficient", {"head_dim": 100}, Unsupported, "multiple of 8"),
        ("b200", "attention", "flash_attention_3", {}, Unsupported, "9.0"),
    ],
)
def test_what_is_refused(
    gpu: str, op: str, kernel: str, changes: dict[str, object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        cell(gpu, ANDREA.replace(**changes), op=op, kernel=kernel)


def test_what_lies_outside_the_support_says_so_and_widens() -> None:
    inside = _attention("h100_sxm5_80gb", "sdpa_flash", _wide(64))
    assert inside.outside == ()
    outside = _attention("h100_sxm5_80gb", "sdpa_flash", _wide(256))
    assert any("head_dim 256" in reason for reason in outside.outside)
    assert outside.high_us / outside.time_us > 1.3 * inside.high_us / inside.time_us
    other = _attention("rtx_5090", "sdpa_flash", _wide(64))
    assert any("no efficiency known on 12.0" in reason for reason in other.outside)
    float32 = _attention("h100_sxm5_80gb", "triton_exact", _wide(64), dtype="float32")
    assert any("16-bit" in reason for reason in float32.outside)
    unknown = _attention("h100_sxm5_80gb", "flashinfer", _wide(64))
    assert any("nothing is known" in reason for reason in unknown.outside)


@pytest.mark.parametrize("op", OPS)
def test_every_predicted_kernel_predicts(op: str) -> None:
    for kernel in predicted_kernels(op):
        direction = "decode" if kernel == "triton_decode" else "forward"
        found = cell("h100_sxm5_80gb", ANDREA.replace(direction=direction), op=op, kernel=kernel)
        assert found.launches >= 1
        assert found.basis


@pytest.mark.parametrize(
    ("gpu", "least", "most"),
    # cuDNN's time over flash's, forward and backward, causal (huggingface/transformers#48163).
    [("h100_sxm5_80gb", 1 / 2.3, 1 / 1.4), ("a100_sxm4_80gb", 1.05, 1.35), ("rtx_pro_6000_blackwell_ws", 0.95, 1.25)],
)
def test_cudnn_beside_flash(gpu: str, least: float, most: float) -> None:
    problem = _wide(128).replace(causal=True, direction="forward_backward", dtype="bfloat16")
    times = {k: cell(gpu, problem, op="attention", kernel=k).time_us for k in ("sdpa_cudnn", "sdpa_flash")}
    assert least < times["sdpa_cudnn"] / times["sdpa_flash"] < most


def test_ratios_on_one_gpu_are_surer_than_times() -> None:
    narrow, wide = (cell("rtx_4090", _wide(d), op="attention", kernel="sdpa_flash") for d in (64, 72))
    found = ratio(wide, narrow)
    assert found.value == pytest.approx(wide.time_us / narrow.time_us)
    assert found.low < found.value < found.high
    # The level of the efficiency, a prior from another architecture, cancels.
    assert found.high / found.low < 1.5
    assert (wide.high_us / narrow.low_us) / (wide.low_us / narrow.high_us) > 3
    elsewhere = cell("h200_sxm", _wide(64), op="attention", kernel="sdpa_flash")
    assert ratio(wide, elsewhere).high == pytest.approx(wide.high_us / elsewhere.low_us)


def test_published_ratios_lie_in_the_predicted_ones() -> None:
    # What two head_dims cost beside one another on an H100, by the same kernel at the same length.
    by = {(one.series, one.size): one for one in published() if one.head_dim in (64, 128) and one.role == "fit"}
    inside = []
    for (series, size), narrow in by.items():
        wide = by.get((series.replace("head_dim 64", "head_dim 128"), size))
        if narrow.head_dim == 64 and wide is not None and size >= 1024:
            found = ratio(wide.predicted, narrow.predicted)
            inside.append(found.low <= wide.measured_us / narrow.measured_us <= found.high)
    assert len(inside) >= 40
    assert sum(inside) / len(inside) >= 0.8


def test_what_the_catalogue_is_unsure_of_is_named() -> None:
    assert any("148" in one for one in _attention("gb200", "triton_exact").unsure)
    assert _attention("rtx_4090", "triton_exact").unsure == ()


def test_taking_turns_costs_narrow_heads_more() -> None:
    # One block per SM: exp and matrix products of head_dim 64 take equally long on an H100, and add.
    narrow, wide = (cell("h100_sxm5_80gb", _wide(d), op="attention", kernel="sdpa_cudnn") for d in (64, 128))
    assert narrow.reachable_us / narrow.bound_us == pytest.approx(2, rel=0.05)
    assert wide.reachable_us / wide.bound_us == pytest.approx(1.5, rel=0.05)
    # Published for cuDNN at seq_len 4096: 408 and 609 TFLOP/s.
    assert wide.tflops / narrow.tflops == pytest.approx(609 / 408, rel=0.15)
    flash = cell("h100_sxm5_80gb", _wide(64), op="attention", kernel="sdpa_flash")
    assert flash.reachable_us == flash.bound_us


@pytest.mark.parametrize(
    ("gpu", "changes", "backend"),
    [
        ("h200_sxm", {}, "sdpa_cudnn"),
        ("h200_sxm", {"head_dim": 192}, "sdpa_flash"),
        ("h200_sxm", {"head_dim": 100}, "sdpa_flash"),
        ("rtx_4090", {}, "sdpa_flash"),
        ("rtx_4090", {"dtype": "float32"}, "sdpa_efficient"),
        ("rtx_4090", {"head_dim": 384}, "sdpa_efficient"),
        ("rtx_4090", {"head_dim": 66, "dtype": "float32"}, "sdpa_math"),
        ("t4", {"dtype": "float16"}, "sdpa_efficient"),
    ],
)
def test_sdpa_is_the_backend_that_torch_prefers(gpu: str, changes: dict[str, object], backend: str) -> None:
    asked = ANDREA.replace(**changes)
    assert cell(gpu, asked, op="attention", kernel="sdpa") == cell(gpu, asked, op="attention", kernel=backend)


def test_the_efficient_backend_accumulates_wide_heads_128_columns_at_a_time() -> None:
    assert _attention("rtx_4090", "sdpa_efficient", head_dim=304).computed_width == 384
