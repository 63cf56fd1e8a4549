"""Choice: one split with all its figures; Timing: how long a part of it takes, and how that is known."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from andrea_bench.errors import Unsupported
from andrea_bench.explore.splits import of_one_gpu, split_label
from andrea_bench.hardware import Gpu
from andrea_bench.predict import Prediction, Ratio, cell, ratio
from andrea_bench.predict.efficiency import Known
from andrea_bench.problem import ELEMENT_BYTES, Problem

How = Literal["predicted", "measured"]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one call in microseconds, from low_us to high_us. how: `predicted` or `measured`.

    percent_of_bound: of the predicted bound, None without one. prediction: where it comes from (beside a
    measured time: what was predicted of it), with width, waste, waves, tail and what binds. doubts: why a
    measured time may be off, by the machine's own counters.
    """

    how: How
    time_us: float
    low_us: float
    high_us: float
    tflops: float | None
    percent_of_bound: float | None
    prediction: Prediction | None
    doubts: list[str] = []

    def over(self, other: "Timing") -> Ratio:
        """This time over the other's. An error of the model's level cancels between two predictions."""
        if self.how == other.how == "predicted" and self.prediction and other.prediction:
            return ratio(self.prediction, other.prediction)
        return Ratio(
            value=self.time_us / other.time_us, low=self.low_us / other.high_us, high=self.high_us / other.low_us
        )


class Choice(msgspec.Struct, kw_only=True):
    """One split on one GPU, or on each of `tensor_parallel` GPUs; then all figures are of one GPU.

    problem: what one GPU computes. alignment: how its rows lie to tensor cores and 16-byte loads.
    layer: both projections and attention; all times are of one layer.
    parameters, kv_cache_bytes_per_token, memory_bytes (attention's weights and the KV cache of the batch) and
    tokens_per_s (attention layers alone) are over n_layer. energy_joules: of one layer; a predicted one is the
    board's power limit for that time, an upper end; energy_relative_error: of a measured one. compiled: Facts
    of a Triton kernel, field by field. reason: why it is not ranked. rank: 1 is best, equal where no difference
    is sure. pareto: no other is better in one of time, KV cache and parameters and as good in the rest.
    """

    split: str
    problem: Problem
    alignment: str = ""
    tensor_parallel: int = 1
    qkv_projection: Timing | None = None
    attention: Timing | None = None
    output_projection: Timing | None = None
    layer: Timing | None = None
    parameters: int
    kv_cache_bytes_per_token: int
    memory_bytes: int
    tokens_per_s: float | None = None
    energy_joules: float | None = None
    energy_how: How | None = None
    energy_relative_error: float | None = None
    compiled: list[dict[str, Any]] = []
    reason: str | None = None
    rank: int | None = None
    pareto: bool = False

    @property
    def doubts(self) -> list[str]:
        """Why one of its measured times may be off."""
        timings = (self.qkv_projection, self.attention, self.output_projection, self.layer)
        return list(dict.fromkeys(doubt for timing in timings if timing for doubt in timing.doubts))

    @property
    def projections_us(self) -> float | None:
        if self.qkv_projection is None or self.output_projection is None:
            return None
        return self.qkv_projection.time_us + self.output_projection.time_us

    def set_layer(self, layer: Timing) -> None:
        """The layer's time, and the tokens per second that follow from it."""
        self.layer = layer
        tokens = self.problem.batch * self.problem.seq_len
        self.tokens_per_s = tokens / (layer.time_us * self.problem.n_layer) * 1e6


def choice(whole: Problem, tensor_parallel: int = 1) -> Choice:
    """The counts of one split, without times. Raises BadInput where heads don't divide among the GPUs."""
    problem = of_one_gpu(whole, tensor_parallel)
    parameters = problem.attention_parameters() * problem.n_layer
    per_token = problem.kv_cache_bytes_per_token()
    return Choice(
        split=split_label(whole),
        problem=problem,
        alignment=problem.alignment(),
        tensor_parallel=tensor_parallel,
        parameters=parameters,
        kv_cache_bytes_per_token=per_token,
        memory_bytes=parameters * ELEMENT_BYTES[problem.dtype] + per_token * problem.batch * problem.kv_len,
    )


def add_predictions(one: Choice, gpu: Gpu, kernel: str, known: Known) -> None:
    """Fill in the predicted times, or the reason why there are none."""

    def timing(op: str, of: str) -> Timing:
        found = cell(gpu, one.problem, op=op, kernel=of, known=known)
        return Timing(
            how="predicted",
            time_us=found.time_us,
            low_us=found.low_us,
            high_us=found.high_us,
            tflops=found.tflops,
            percent_of_bound=found.percent_of_bound,
            prediction=found,
        )

    try:
        one.qkv_projection = timing("qkv_projection", "fused_qkv")
        one.attention = timing("attention", kernel)
        one.output_projection = timing("output_projection", "strided_matmul")
        one.set_layer(timing("layer", kernel))
    except Unsupported as error:
        one.reason = str(error)
        return
    if gpu.tdp_watts and one.layer:
        one.energy_joules = gpu.tdp_watts * one.layer.time_us / 1e6
        one.energy_how = "predicted"


def objective_value(objective: str) -> Callable[[Choice], float | None]:
    """What is to be small: layer time in microseconds, joules, or bytes."""
    return {
        "time": lambda one: one.layer.time_us if one.layer else None,
        "energy": lambda one: one.energy_joules,
        "kv_cache": lambda one: float(one.kv_cache_bytes_per_token),
        "memory": lambda one: float(one.memory_bytes),
    }[objective]
