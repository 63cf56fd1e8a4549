"""Fitting efficiencies: one number per architecture, kernel family and direction, from measured times, and
how far it misses what was left out of the fit."""

from collections.abc import Iterable, Mapping
from statistics import fmean, median, quantiles

import msgspec

from andrea_bench.errors import BadInput, Unsupported
from andrea_bench.hardware import Gpu
from andrea_bench.predict.cells import cell, predicted_kernels
from andrea_bench.predict.efficiency import Efficiency, Key
from andrea_bench.predict.prediction import Prediction
from andrea_bench.problem import OPS
from andrea_bench.record import Record

# The least share of the bound that is believed; below it something else than the family was measured.
LEAST = 0.01


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One measured time beside the bound of the same launch. gpu and head_dim (None for a matrix product):
    what a leave-one-out fit leaves out."""

    key: Key
    bound_us: float
    time_us: float
    gpu: str
    head_dim: int | None = None

    @property
    def share(self) -> float:
        """The share of the bound that was reached; above 1 the GPU clocks higher than its stated peak."""
        return self.bound_us / self.time_us


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """What the efficiency fitted without one GPU (or head_dim) makes of it: mean absolute percentage error."""

    key: Key
    left_out: str
    points: int
    error_percent: float


def fit(points: Iterable[Point], source: str) -> dict[Key, Efficiency]:
    """The median share of the bound for each key, from the 5th to the 95th percentile (of three points and
    fewer: the extremes, and 10 % beyond). source: what the points are, for `basis`."""
    groups: dict[Key, list[float]] = {}
    for point in points:
        groups.setdefault(point.key, []).append(min(max(point.share, LEAST), 1.0))
    return {key: _efficiency(key, shares, source) for key, shares in groups.items()}


def _efficiency(key: Key, shares: list[float], source: str) -> Efficiency:
    if len(shares) > 3:
        twentieths = quantiles(shares, n=20, method="inclusive")
        low, high = twentieths[0], twentieths[-1]
    else:
        low, high = 0.9 * min(shares), min(1.1 * max(shares), 1.0)
    capability, family, direction = key
    return Efficiency(
        compute_capability=capability,
        family=family,
        direction=direction,
        value=median(shares),
        low=low,
        high=high,
        fitted=True,
        source=source,
    )


def leave_one_out(points: Iterable[Point]) -> list[LeftOut]:
    """For each key with points of several GPUs: each GPU predicted from the others; else the same for
    head_dims. Keys with neither have nothing to leave out and are not in the result."""
    by_key: dict[Key, list[Point]] = {}
    for point in points:
        by_key.setdefault(point.key, []).append(point)
    found = []
    for key, group in by_key.items():
        label = "gpu" if len({point.gpu for point in group}) > 1 else "head_dim"
        values = sorted({getattr(point, label) for point in group}, key=str)
        if len(values) < 2:
            continue
        for value in values:
            rest = [point.share for point in group if getattr(point, label) != value]
            out = [point for point in group if getattr(point, label) == value]
            error = mean_error_percent((point.bound_us / median(rest), point.time_us) for point in out)
            text = value if label == "gpu" else f"head_dim {value}"
            found.append(LeftOut(key=key, left_out=text, points=len(out), error_percent=error))
    return found


def mean_error_percent(pairs: Iterable[tuple[float, float]]) -> float:
    """Mean absolute percentage error of (predicted, measured) pairs."""
    return fmean(100 * abs(predicted / measured - 1) for predicted, measured in pairs)


def point(prediction: Prediction, time_us: float, head_dim: int | None = None) -> Point | None:
    """A Point of one measured launch; None where the prediction is of several launches, or bound by the
    launch itself: they say nothing of one family's efficiency."""
    if prediction.launches != 1 or prediction.bound_by == "launch" or not prediction.keys:
        return None
    return Point(
        key=prediction.keys[0],
        bound_us=prediction.bound_us,
        time_us=time_us,
        gpu=prediction.gpu,
        head_dim=head_dim,
    )


def points_of_records(records: Iterable[Record], gpu: Gpu) -> list[Point]:
    """The Points of what a Run measured on `gpu`: ok Records of kernels that are one launch of a family.

    Records of a CPU, of other statuses and of kernels without a prediction are passed over. Raises BadInput
    where nothing is left to fit.
    """
    found: list[Point] = []
    total = 0
    for record in records:
        total += 1
        if record.status != "ok" or not record.device.startswith("cuda") or record.op not in OPS:
            continue
        if record.kernel not in predicted_kernels(record.op):
            continue
        try:
            predicted = cell(gpu, record.problem, op=record.op, kernel=record.kernel)
        except Unsupported:
            continue
        head_dim = record.problem.head_dim if record.op == "attention" else None
        made = point(predicted, median(record.samples_us), head_dim)
        if made is not None:
            found.append(made)
    if not found:
        raise BadInput(f"none of {total} records can be fitted: no kernel of a single launch, ok, on cuda")
    return found


def fit_records(records: Iterable[Record], gpu: Gpu, source: str) -> tuple[Mapping[Key, Efficiency], list[LeftOut]]:
    """Efficiencies refitted from a Run's Records, for the `known` of `cell` and `matmul`, and their
    leave-one-out errors. source: the Run's name."""
    points = points_of_records(records, gpu)
    return fit(points, source), leave_one_out(points)
