"""Gpu and Architecture: the catalogue of NVIDIA GPUs, one TOML file each, every number with its source.

In the files a number is `{ value = 132, source = ["h200"] }`, its sources are keys of the file's [sources]
table, and `unsure = "why"` marks what the sources don't agree on or what was only recalled. Peaks are dense
(no 2:4 sparsity) and stated at the vendor's boost (or tensor) clock: a GeForce card can run above its peak,
a power-limited one runs far below.
"""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from andrea_bench.errors import BadInput, unknown_name

CATALOGUE = Path(__file__).parent / "catalogue"
WARP_SIZE = 32


class Architecture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all GPUs of one compute capability share: limits that a launch must keep, and rates per SM.

    `*_per_clk_per_sm` are results (exp: ex2; fma: float32; alu: 32-bit integer), lanes or bytes that one SM
    does in one clock. shared_memory_per_block_bytes is the opt-in maximum. unsure: field -> why.
    sources: field -> where the number is from.
    """

    compute_capability: str
    name: str
    mma_shapes: tuple[str, ...]
    max_threads_per_block: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    max_registers_per_thread: int
    register_allocation_unit_per_warp: int
    sub_partitions_per_sm: int
    shared_memory_per_sm_bytes: int
    shared_memory_per_block_bytes: int
    shared_memory_reserved_per_block_bytes: int
    shared_memory_allocation_unit_bytes: int
    named_barriers_per_block_slot: int
    tensor_memory_columns_per_sm: int | None = None
    tensor_memory_per_sm_bytes: int | None = None
    exp_per_clk_per_sm: int
    fma_per_clk_per_sm: int
    alu_per_clk_per_sm: int
    shared_memory_bytes_per_clk_per_sm: int
    load_store_lanes_per_clk_per_sm: int
    l2_bytes_per_clk_per_sm: float
    unsure: dict[str, str]
    sources: dict[str, tuple[str, ...]]

    @property
    def target(self) -> str:
        """The compiler's name for it: `sm_90`."""
        return "sm_" + self.compute_capability.replace(".", "")

    @property
    def max_warps_per_sm(self) -> int:
        return self.max_threads_per_sm // WARP_SIZE


class Gpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU of the catalogue, or (named `sm_90`) no more than an architecture: then the numbers that belong
    to a product are None.

    A peak that is None is a type without tensor cores, or not published. sustained_tensor_share: of the peak
    that the board's power limit lets a long matrix product keep, where that is far below it. unsure: field ->
    why; notes: what else to know. sources: field -> where the number is from.
    """

    name: str
    product_name: str
    name_patterns: tuple[str, ...] = ()
    name_patterns_not: tuple[str, ...] = ()
    compute_capability: str
    architecture: Architecture
    sm_count: int | None = None
    boost_clock_mhz: int | None = None
    tensor_clock_mhz: int | None = None
    max_reported_clock_mhz: int | None = None
    tensor_fp16_fp32acc_flop_per_clk_per_sm: int | None = None
    fp16_fp32acc_dense_tflops: float | None = None
    fp16_fp16acc_dense_tflops: float | None = None
    bf16_fp32acc_dense_tflops: float | None = None
    tf32_dense_tflops: float | None = None
    fp8_fp32acc_dense_tflops: float | None = None
    fp8_fp16acc_dense_tflops: float | None = None
    int8_dense_tops: float | None = None
    fp4_dense_tflops: float | None = None
    fp32_nontensor_tflops: float | None = None
    sustained_tensor_share: float | None = None
    memory_type: str | None = None
    memory_bus_bits: int | None = None
    memory_gb: float | None = None
    memory_bandwidth_gb_per_s: float | None = None
    l2_mib: float | None = None
    tdp_watts: int | None = None
    notes: tuple[str, ...] = ()
    unsure: dict[str, str] = {}
    sources: dict[str, tuple[str, ...]] = {}

    @property
    def clock_mhz(self) -> int | None:
        """The clock at which the tensor peaks are stated."""
        return self.tensor_clock_mhz or self.boost_clock_mhz

    def peak_tflops(self, dtype: str) -> float | None:
        """Dense peak of matrix products in `dtype` with float32 accumulation; None where there is none.
        float32 is IEEE float32, which no tensor core does."""
        return {
            "float16": self.fp16_fp32acc_dense_tflops,
            "bfloat16": self.bf16_fp32acc_dense_tflops,
            "tf32": self.tf32_dense_tflops,
            "float32": self.fp32_nontensor_tflops,
        }[dtype]


class _Numbers(NamedTuple):
    """The fields of a catalogue file, with what stands beside its numbers taken apart."""

    fields: dict[str, Any]
    sources: dict[str, tuple[str, ...]]
    unsure: dict[str, str]


def _read(path: Path) -> _Numbers:
    """Raises BadInput that names the file, for what is no TOML or a number without a source."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not readable as TOML: {error}") from error
    texts = document.pop("sources", {})
    numbers = _Numbers({}, {}, {})
    for field, entry in document.items():
        if isinstance(entry, int | float):
            raise BadInput(f"{path}: {field} has no source; write {{ value = {entry}, source = [...] }}")
        if not isinstance(entry, dict):
            numbers.fields[field] = entry
            continue
        cited = entry.get("source", [])
        if not cited or set(cited) - texts.keys():
            raise BadInput(f"{path}: {field} cites {cited}; [sources] has {sorted(texts)}")
        numbers.fields[field] = entry.get("value")
        numbers.sources[field] = tuple(texts[key] for key in cited)
        if "unsure" in entry:
            numbers.unsure[field] = entry["unsure"]
    return numbers


def _convert(path: Path, kind: type, numbers: _Numbers, **more: Any) -> Any:
    beside = {"sources": numbers.sources, "unsure": numbers.unsure}
    try:
        return msgspec.convert(numbers.fields | beside | more, kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: {error}") from error


@cache
def architectures() -> dict[str, Architecture]:
    """All architectures of the catalogue, by compute capability ("9.0"), oldest first."""
    found = []
    for path in (CATALOGUE / "arch").glob("*.toml"):
        found.append(_convert(path, Architecture, _read(path)))
    found.sort(key=lambda a: float(a.compute_capability))
    return {architecture.compute_capability: architecture for architecture in found}


@cache
def gpus() -> dict[str, Gpu]:
    """All GPUs of the catalogue, by name (the file's), oldest architecture first."""
    found = [read_gpu(path) for path in CATALOGUE.glob("*.toml")]
    found.sort(key=lambda g: (float(g.compute_capability), g.name))
    return {gpu.name: gpu for gpu in found}


def read_gpu(path: Path) -> Gpu:
    """The Gpu of one catalogue file; its name is the file's. Raises BadInput."""
    numbers = _read(path)
    capability = numbers.fields.get("compute_capability")
    if capability not in architectures():
        raise unknown_name(f"compute capability in {path}", str(capability), architectures())
    made: Gpu = _convert(path, Gpu, numbers, name=path.stem, architecture=architectures()[capability])
    return made


def find_gpu(name: "str | Gpu") -> Gpu:
    """The Gpu of that catalogue name, or for `sm_90` (also `sm_90a`) an architecture without a product: its
    limits are known, its SM count, clocks, peaks and bandwidth are None. A Gpu is returned as it is.

    Raises BadInput with the nearest names.
    """
    if isinstance(name, Gpu):
        return name
    if name in gpus():
        return gpus()[name]
    if re.match(r"gfx|hip|mi\d|radeon|rx_?\d", name.lower()):
        raise BadInput(f"{name}: AMD GPUs are not in the catalogue; see `andrea-bench list gpus`")
    targets = {a.target: a for a in architectures().values()}
    asked = re.fullmatch(r"(sm_\d+)[af]?", name)
    if asked and asked[1] in targets:
        architecture = targets[asked[1]]
        return Gpu(
            name=architecture.target,
            product_name=f"any GPU of compute capability {architecture.compute_capability}",
            compute_capability=architecture.compute_capability,
            architecture=architecture,
        )
    if asked:
        raise BadInput(f"unknown target {name!r}; known: {', '.join(targets)}")
    raise unknown_name("GPU", name, [*gpus(), *targets])


def match_device_name(device_name: str) -> Gpu | None:
    """The Gpu that a driver calls `device_name` ("NVIDIA H100 80GB HBM3"), or None.

    A pattern must end where a word ends, so that A10 is not found in A10G or A100. A MIG slice has fewer SMs
    and less bandwidth than its catalogue entry, so it matches nothing.
    """
    if _has_words("MIG", device_name):
        return None
    for gpu in gpus().values():
        if any(_has_words(no, device_name) for no in gpu.name_patterns_not):
            continue
        if any(_has_words(pattern, device_name) for pattern in gpu.name_patterns):
            return gpu
    return None


def _has_words(words: str, text: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(words)}(?![A-Za-z0-9])", text, re.IGNORECASE) is not None
