"""The GPU catalogue: every file parses, every number has a source, and the numbers agree with one another."""

import tomllib
from pathlib import Path

import pytest

from andrea_bench.errors import BadInput
from andrea_bench.hardware import Gpu, architectures, find_gpu, gpus, match_device_name
from andrea_bench.hardware.gpu import CATALOGUE, read_gpu

FILES = sorted(CATALOGUE.rglob("*.toml"))
# Names as drivers report them, and the catalogue's entry; None: a card that must not be taken for a relative.
DEVICE_NAMES = {
    "Tesla V100-SXM2-32GB": "v100_sxm2_32gb",
    "Tesla V100-PCIE-16GB": "v100_pcie",
    "Tesla T4": "t4",
    "NVIDIA A10": "a10",
    "NVIDIA A10G": None,
    "NVIDIA A10-24Q": "a10",
    "NVIDIA A100-SXM4-40GB": "a100_sxm4_40gb",
    "NVIDIA A100-SXM4-80GB": "a100_sxm4_80gb",
    "NVIDIA A100-PCIE-40GB": "a100_pcie_40gb",
    "NVIDIA A100 80GB PCIe": "a100_pcie_80gb",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb": None,
    "NVIDIA A40": None,
    "NVIDIA GeForce RTX 3090": "rtx_3090",
    "NVIDIA GeForce RTX 3090 Ti": None,
    "NVIDIA GeForce RTX 4090": "rtx_4090",
    "NVIDIA GeForce RTX 4090 D": None,
    "NVIDIA GeForce RTX 4090 Laptop GPU": None,
    "NVIDIA L4": "l4",
    "NVIDIA L40": None,
    "NVIDIA L40S": "l40s",
    "NVIDIA RTX 6000 Ada Generation": "rtx_6000_ada",
    "Quadro RTX 6000": None,
    "NVIDIA H100 80GB HBM3": "h100_sxm5_80gb",
    "NVIDIA H100 PCIe": "h100_pcie_80gb",
    "NVIDIA H100 NVL": None,
    "NVIDIA H200": "h200_sxm",
    "NVIDIA H200 NVL": None,
    "NVIDIA GH200 480GB": None,
    "NVIDIA B200": "b200",
    "NVIDIA GB200": "gb200",
    "NVIDIA GeForce RTX 5090": "rtx_5090",
    "NVIDIA GeForce RTX 5090 D": None,
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtx_pro_6000_blackwell_ws",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": None,
    "AMD Instinct MI300X": None,
    "": None,
}


def test_the_catalogue_is_there() -> None:
    assert len(gpus()) >= 20
    assert set(architectures()) == {"7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"}
    assert {gpu.compute_capability for gpu in gpus().values()} == set(architectures())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_number_has_a_source(path: Path) -> None:
    document = tomllib.loads(path.read_text())
    texts = document.pop("sources")
    numbers = {field: entry for field, entry in document.items() if not isinstance(entry, str | list)}
    assert numbers
    for field, entry in numbers.items():
        assert entry["source"], field
        for key in entry["source"]:
            assert len(texts[key]) > 10, field
    cited = {key for entry in numbers.values() for key in entry["source"]}
    assert cited == set(texts), "a source that nothing cites"


@pytest.mark.parametrize("gpu", gpus().values(), ids=lambda gpu: gpu.name)
def test_peaks_are_sms_times_clock_times_rate(gpu: Gpu) -> None:
    assert gpu.sm_count
    assert gpu.clock_mhz
    assert gpu.boost_clock_mhz
    assert gpu.tensor_fp16_fp32acc_flop_per_clk_per_sm
    tensor = gpu.sm_count * gpu.clock_mhz * gpu.tensor_fp16_fp32acc_flop_per_clk_per_sm / 1e6
    assert gpu.peak_tflops("float16") == pytest.approx(tensor, rel=0.015)
    fma = gpu.sm_count * gpu.boost_clock_mhz * 2 * gpu.architecture.fma_per_clk_per_sm / 1e6
    assert gpu.peak_tflops("float32") == pytest.approx(fma, rel=0.015)
    for dtype, share in {"bfloat16": 1, "tf32": 0.5}.items():
        peak = gpu.peak_tflops(dtype)
        assert peak is None or peak == pytest.approx(share * tensor, rel=0.015)


def test_types_that_a_tensor_core_lacks_are_none() -> None:
    assert gpus()["v100_pcie"].peak_tflops("bfloat16") is None
    assert gpus()["t4"].peak_tflops("tf32") is None


def test_half_rate_belongs_to_the_card_not_to_its_architecture() -> None:
    # Measured by users: RTX 4090 165-168 TFLOP/s of float16, L4 above half of its 121.
    assert gpus()["rtx_4090"].fp16_fp32acc_dense_tflops == 165.2
    assert gpus()["rtx_4090"].tensor_fp16_fp32acc_flop_per_clk_per_sm == 512
    assert gpus()["l4"].tensor_fp16_fp32acc_flop_per_clk_per_sm == 1024


def test_what_is_unsure_stays_unsure() -> None:
    assert "148" in gpus()["gb200"].unsure["sm_count"]
    assert "sm_count" not in gpus()["h200_sxm"].unsure
    assert any("Max-Q" in note for note in gpus()["rtx_pro_6000_blackwell_ws"].notes)


@pytest.mark.parametrize(("device_name", "expected"), DEVICE_NAMES.items())
def test_device_names(device_name: str, expected: str | None) -> None:
    found = match_device_name(device_name)
    assert (found.name if found else None) == expected


def test_no_device_name_belongs_to_two() -> None:
    for gpu in gpus().values():
        for pattern in gpu.name_patterns:
            found = match_device_name(pattern)
            assert found is not None
            assert found.name == gpu.name


def test_a_target_has_limits_and_no_product() -> None:
    for name in ("sm_90", "sm_90a"):
        gpu = find_gpu(name)
        assert gpu.name == "sm_90"
        assert gpu.architecture.shared_memory_per_block_bytes == 232448
        assert gpu.sm_count is None
        assert gpu.peak_tflops("float16") is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rtx4090", "rtx_4090"),
        ("H100_sxm5", "h100_sxm5_80gb"),
        ("sm_999", "sm_120"),
        ("gfx942", "AMD"),
        ("mi300x", "AMD"),
        ("MI250", "AMD"),
        ("rx_7900", "AMD"),
        ("", "known"),
    ],
)
def test_unknown_names_say_what_is_near(name: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        find_gpu(name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('compute_capability = "9.0"\nproduct_name = "X"\nsm_count = 3', "sm_count has no source"),
        (
            'compute_capability = "9.0"\nproduct_name = "X"\nsm_count = { value = 3, source = ["a"] }',
            "sm_count cites",
        ),
        ('compute_capability = "9.9"\nproduct_name = "X"', "9.9"),
        ('compute_capability = "9.0"\nproduct_name = "X"\nwidth = "3"', "width"),
        ("compute_capability =", "TOML"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=rf"mine\.toml.*{says}"):
        read_gpu(path)


def test_a_gpu_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a100_sxm4_80gb_mine.toml"
    path.write_text((CATALOGUE / "a100_sxm4_80gb.toml").read_text())
    gpu = read_gpu(path)
    assert gpu.name == "a100_sxm4_80gb_mine"
    assert gpu.sm_count == 108
