"""Prediction: the time of an Op on a Gpu of the catalogue, and the Bound that it comes from.

A Bound is what no kernel of that shape can beat on that GPU at its stated clock: the largest of what tensor
cores, exp units, shared memory, L2, DRAM and launches need, with the tiles and waves it has to compute. The
time is the bound over an efficiency, one number per architecture and kernel family (see efficiency.py).
"""

from collections.abc import Iterable, Sequence

import msgspec

from andrea_bench.errors import BadInput, Unsupported
from andrea_bench.hardware import Gpu
from andrea_bench.predict.efficiency import Efficiency, Key, spread_of_range

# A launch that the GPU already waits for: 256^3 matrix products at 15.0 TFLOP/s in a CUDA graph, kernel
# included (triton-lang/triton#10149).
LAUNCH_US = 2.2
# The same product launched one by one from the host: 5.5 TFLOP/s (same source), so the host's share.
HOST_LAUNCH_US = 6.1
# From a block's start to its first operands: one DRAM access. Recalled from public microbenchmarks of A100
# and H100 (0.5 to 0.7 us).
DRAM_LATENCY_US = 0.6
# How far the interval of a Prediction outside its support reaches beyond that of one inside.
WIDENING = 1.5
# The numbers of a Gpu that a Prediction is made of.
USED_FIELDS = ("sm_count", "boost_clock_mhz", "tensor_clock_mhz", "fp16_fp32acc_dense_tflops",
               "memory_bandwidth_gb_per_s", "l2_mib", "memory_gb")  # fmt: skip


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """What one kernel launch must take.

    parts_us: by unit (`tensor` or `fma`, `exp`, `shared_memory`, `l2`, `dram`, `launch`), each with its tiles
    and waves. time_us: at least the largest part; more where latency adds to it. in_turn_us: the same for a
    kernel whose units take turns (0: they don't). waves: blocks over SMs. tail_efficiency: the work over what
    the busiest SM makes the GPU wait for. computed_width: head_dim as computed, None where there is no
    head_dim. flops_issued: with what tiles and width add. outside: why the model may not hold here.
    """

    time_us: float
    in_turn_us: float = 0.0
    parts_us: dict[str, float]
    waves: float | None = None
    tail_efficiency: float | None = None
    tile: tuple[int, int] | None = None
    computed_width: int | None = None
    flops_issued: int = 0
    outside: tuple[str, ...] = ()

    @property
    def reachable_us(self) -> float:
        """What the kernel's structure allows: the bound, or more where it takes turns."""
        return max(self.time_us, self.in_turn_us)

    @property
    def bound_by(self) -> str:
        return max(self.parts_us, key=lambda part: self.parts_us[part])


def together(bounds: Sequence[Bound]) -> Bound:
    """The bound of launches one after the other: what they take adds up, the rest is of the longest."""
    if len(bounds) == 1:
        return bounds[0]
    units = {unit: sum(one.parts_us.get(unit, 0.0) for one in bounds) for one in bounds for unit in one.parts_us}
    return msgspec.structs.replace(
        max(bounds, key=lambda one: one.time_us),
        time_us=sum(one.time_us for one in bounds),
        in_turn_us=sum(one.reachable_us for one in bounds),
        parts_us=units,
        flops_issued=sum(one.flops_issued for one in bounds),
        outside=tuple(dict.fromkeys(reason for one in bounds for reason in one.outside)),
    )


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The predicted time of one call, in microseconds, from low_us to high_us (about 90 % of what the
    efficiency was seen to vary, more outside its support), never below bound_us.
    reachable_us: the bound with what the kernel's structure keeps from overlapping; the efficiency is of that.

    tflops: by the FLOPs of the Problem (useful ones), at time_us. basis: where the efficiency comes from.
    outside: why the model may not hold here; then the interval is wider. unsure: numbers of the GPU in use
    that the catalogue is not sure of. keys: the efficiencies that were asked for; spread: how far the ratio
    to another Prediction of the same GPU and keys may be off, as a factor (see `ratio`). parts_us, waves,
    tail_efficiency, tile, computed_width: of the bound (see Bound); of several launches, parts_us is their
    sum and the rest is of the longest. waste: the share of the issued matrix FLOPs that is not useful, None
    without any.
    """

    gpu: str
    time_us: float
    low_us: float
    high_us: float
    bound_us: float
    reachable_us: float
    bound_by: str
    tflops: float
    basis: str
    launches: int
    parts_us: dict[str, float]
    waves: float | None
    tail_efficiency: float | None
    tile: tuple[int, int] | None
    computed_width: int | None
    waste: float | None
    outside: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()
    spread: float

    @property
    def percent_of_bound(self) -> float:
        return 100 * self.bound_us / self.time_us


def expect(gpu: Gpu, bound: Bound, efficiency: Efficiency, key: Key, flops: int) -> Prediction:
    """The Prediction of one launch: its bound over the efficiency. key: what an efficiency was asked for.

    The host's own launch time is a floor of what is expected, but no part of the bound: a graph hides it.
    """
    outside = bound.outside + efficiency.outside
    if gpu.sustained_tensor_share is not None and bound.bound_by == "tensor":
        efficiency = efficiency.scaled(gpu.sustained_tensor_share)
        outside += (f"power-limited: sustains about {gpu.sustained_tensor_share:.0%} of its tensor peak",)
    if bound.bound_by == "launch":
        outside += ("bound by the launch: the host decides",)
    time_us = max(bound.reachable_us / efficiency.value, bound.time_us, HOST_LAUNCH_US)
    low_us = bound.reachable_us / efficiency.high
    high_us = max(bound.reachable_us / efficiency.low, HOST_LAUNCH_US)
    if outside:
        low_us, high_us = low_us / WIDENING, high_us * WIDENING
    return Prediction(
        gpu=gpu.name,
        time_us=time_us,
        low_us=min(max(low_us, bound.time_us), time_us),
        high_us=max(high_us, time_us),
        bound_us=bound.time_us,
        reachable_us=bound.reachable_us,
        bound_by=bound.bound_by,
        tflops=flops / time_us / 1e6,
        basis=efficiency.basis,
        launches=1,
        parts_us=bound.parts_us,
        waves=bound.waves,
        tail_efficiency=bound.tail_efficiency,
        tile=bound.tile,
        computed_width=bound.computed_width,
        waste=1 - flops / bound.flops_issued if bound.flops_issued else None,
        outside=outside,
        unsure=tuple(f"{field}: {gpu.unsure[field]}" for field in USED_FIELDS if field in gpu.unsure),
        keys=(key,),
        spread=efficiency.spread or spread_of_range(efficiency.low, efficiency.high),
    )


def repeat(prediction: Prediction, times: int, flops: int) -> Prediction:
    """The same launch `times` times, one after the other; flops of all together."""
    return msgspec.structs.replace(
        prediction,
        time_us=prediction.time_us * times,
        low_us=prediction.low_us * times,
        high_us=prediction.high_us * times,
        bound_us=prediction.bound_us * times,
        reachable_us=prediction.reachable_us * times,
        launches=prediction.launches * times,
        parts_us={part: us * times for part, us in prediction.parts_us.items()},
        tflops=flops / (prediction.time_us * times) / 1e6,
    )


def in_sequence(predictions: Iterable[Prediction], flops: int) -> Prediction:
    """Launches one after the other: times add; what binds is what binds the longest of them."""
    parts = list(predictions)
    longest = max(parts, key=lambda one: one.time_us)
    units: dict[str, float] = {}
    for part in parts:
        for unit, us in part.parts_us.items():
            units[unit] = units.get(unit, 0.0) + us
    time_us = sum(part.time_us for part in parts)
    return msgspec.structs.replace(
        longest,
        time_us=time_us,
        low_us=sum(part.low_us for part in parts),
        high_us=sum(part.high_us for part in parts),
        bound_us=sum(part.bound_us for part in parts),
        reachable_us=sum(part.reachable_us for part in parts),
        tflops=flops / time_us / 1e6,
        basis="; ".join(dict.fromkeys(part.basis for part in parts)),
        launches=sum(part.launches for part in parts),
        parts_us=units,
        outside=tuple(dict.fromkeys(reason for part in parts for reason in part.outside)),
        keys=tuple(sorted({key for part in parts for key in part.keys})),
        spread=sum(part.spread * part.time_us for part in parts) / time_us,
    )


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one Prediction over that of another, from low to high."""

    value: float
    low: float
    high: float


def ratio(one: Prediction, other: Prediction) -> Ratio:
    """How long `one` takes for each microsecond of `other`.

    On one GPU with the same efficiencies (two splits of one width, say) an error of their level cancels, so
    that the ratio is surer than either time: what is left is their spread. Else the two intervals count.
    """
    value = one.time_us / other.time_us
    if one.gpu == other.gpu and set(one.keys) == set(other.keys):
        factor = max(one.spread, other.spread)
        return Ratio(value=value, low=value / factor, high=value * factor)
    return Ratio(value=value, low=one.low_us / other.high_us, high=one.high_us / other.low_us)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What one SM of a Gpu does in a microsecond, for one dtype; DRAM for the whole GPU."""

    matrix_unit: str
    flops: float
    exp: float
    shared_bytes: float
    l2_bytes: float
    dram_bytes: float
    l2_capacity_bytes: float
    sm_count: int

    def dram_us(self, moved_bytes: int) -> float:
        """Time to move that much to and from DRAM; none where it all stays in the L2, as it does when the
        same call is repeated (a warm cache)."""
        return 0.0 if moved_bytes <= self.l2_capacity_bytes else moved_bytes / self.dram_bytes

    def l2_us(self, moved_bytes: int) -> float:
        """Time to move that much through the L2, all SMs together."""
        return moved_bytes / (self.l2_bytes * self.sm_count)


def rates(gpu: Gpu, dtype: str, *, tensor_share: float = 1.0) -> Rates:
    """Rates of `gpu` at the clock of its stated peak. tensor_share: of the tensor peak that the kernel's
    instructions can reach. Raises BadInput for a target without a product (`sm_90`) and Unsupported where
    the GPU has no matrix rate for the dtype."""
    clock, sm_count, bandwidth = gpu.clock_mhz, gpu.sm_count, gpu.memory_bandwidth_gb_per_s
    if sm_count is None or clock is None or bandwidth is None:
        raise BadInput(
            f"{gpu.name} is a compiler target: it has no SM count, clock or bandwidth to predict with; "
            f"name a GPU of that architecture (`andrea-bench list gpus`)"
        )
    peak = gpu.peak_tflops(dtype)
    if peak is None:
        raise Unsupported(f"{gpu.name} has no {dtype} matrix rate in the catalogue: its tensor cores lack it")
    per_sm = peak * 1e6 / sm_count
    return Rates(
        matrix_unit="fma" if dtype == "float32" else "tensor",
        flops=per_sm if dtype == "float32" else per_sm * tensor_share,
        exp=clock * gpu.architecture.exp_per_clk_per_sm,
        shared_bytes=clock * gpu.architecture.shared_memory_bytes_per_clk_per_sm,
        l2_bytes=clock * gpu.architecture.l2_bytes_per_clk_per_sm,
        dram_bytes=bandwidth * 1e3,
        l2_capacity_bytes=(gpu.l2_mib or 0) * 2**20,
        sm_count=sm_count,
    )


def check_memory(gpu: Gpu, needed_bytes: int) -> None:
    """Raises Unsupported where the tensors of one call do not fit into the GPU's memory."""
    if gpu.memory_gb is not None and needed_bytes > gpu.memory_gb * 1e9:
        raise Unsupported(f"needs {needed_bytes / 1e9:.4g} GB; {gpu.name} has {gpu.memory_gb:g} GB")
