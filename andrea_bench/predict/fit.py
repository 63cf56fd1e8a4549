"""Fitting efficiencies: one number per architecture, kernel family and direction, from measured times, and
how far it misses what was left out of the fit."""

from collections.abc import Callable, Iterable, Mapping
from statistics import fmean, median, quantiles

import msgspec

from andrea_bench.errors import BadInput, Unsupported
from andrea_bench.hardware import Gpu
from andrea_bench.predict.cells import cell, predicted_kernels
from andrea_bench.predict.efficiency import MOST, Efficiency, Key
from andrea_bench.predict.prediction import HOST_LAUNCH_US, Prediction
from andrea_bench.problem import OPS
from andrea_bench.record import Record

# The least share of the bound that is believed; below it something else than the family was measured.
LEAST = 0.01


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One measured time beside what the same launch could reach. gpu and head_dim (None for a matrix product):
    what a leave-one-out fit leaves out."""

    key: Key
    reachable_us: float
    time_us: float
    gpu: str
    head_dim: int | None = None

    @property
    def share(self) -> float:
        """The share of the bound that was reached; above 1 the GPU clocks higher than its stated peak."""
        return self.reachable_us / self.time_us


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, or a head_dim, predicted with the efficiency fitted on the others of its family: mean absolute
    percentage error over its points."""

    family: str
    direction: str
    left_out: str
    points: int
    error_percent: float


def fit(points: Iterable[Point], source: str) -> dict[Key, Efficiency]:
    """The median share of the bound for each key, from the 5th to the 95th percentile (of three points and
    fewer: the extremes, and 10 % beyond). source: what the points are, for `basis`."""
    groups: dict[Key, list[Point]] = {}
    for point in points:
        groups.setdefault(point.key, []).append(point)
    return {key: _efficiency(key, group, source) for key, group in groups.items()}


def _efficiency(key: Key, points: list[Point], source: str) -> Efficiency:
    shares = [min(max(point.share, LEAST), MOST) for point in points]
    head_dims = [point.head_dim for point in points if point.head_dim is not None]
    if len(shares) > 3:
        twentieths = quantiles(shares, n=20, method="inclusive")
        low, high = twentieths[0], twentieths[-1]
    else:
        low, high = 0.9 * min(shares), min(1.1 * max(shares), MOST)
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
        least_head_dim=min(head_dims, default=None),
        most_head_dim=max(head_dims, default=None),
    )


def leave_one_out(points: Iterable[Point]) -> list[LeftOut]:
    """For each family and direction: each GPU predicted from the other GPUs, whatever their architecture;
    and where only one GPU was measured, each head_dim from the others. The efficiency is the median of the
    others' own medians, so that a long sweep does not outvote them. Where there are no others: no entry."""
    families: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        families.setdefault(point.key[1:], []).append(point)
    found = []
    for (family, direction), group in families.items():
        by_gpu = _by(group, lambda point: point.gpu)
        by_head_dim = _by(group, lambda point: f"head_dim {point.head_dim}")
        parts = by_gpu if len(by_gpu) > 1 else by_head_dim
        medians = {label: median(point.share for point in part) for label, part in parts.items()}
        for label, part in parts.items():
            others = [value for other, value in medians.items() if other != label]
            if not others:
                continue
            pairs = ((point.reachable_us / median(others), point.time_us) for point in part)
            found.append(
                LeftOut(
                    family=family,
                    direction=direction,
                    left_out=label,
                    points=len(part),
                    error_percent=mean_error_percent(pairs),
                )
            )
    return found


def _by(points: Iterable[Point], label: Callable[[Point], str]) -> dict[str, list[Point]]:
    parts: dict[str, list[Point]] = {}
    for point in points:
        parts.setdefault(label(point), []).append(point)
    return parts


def mean_error_percent(pairs: Iterable[tuple[float, float]]) -> float:
    """Mean absolute percentage error of (predicted, measured) pairs."""
    return fmean(100 * abs(predicted / measured - 1) for predicted, measured in pairs)


def point(prediction: Prediction, time_us: float, head_dim: int | None = None) -> Point | None:
    """A Point of one measured call; None where launches of several families are in it, where the launch itself
    binds, or where several launches are shorter than the host takes to make them: those say nothing of one
    family's efficiency."""
    if len(prediction.keys) != 1 or prediction.bound_by == "launch":
        return None
    if prediction.launches > 1 and prediction.reachable_us < prediction.launches * HOST_LAUNCH_US:
        return None
    return Point(
        key=prediction.keys[0],
        reachable_us=prediction.reachable_us,
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


def fit_lines(known: Mapping[Key, Efficiency], left_out: Iterable[LeftOut]) -> list[str]:
    """A refit in words: each efficiency with its range, and each leave-one-out error."""
    lines = [f"{one.basis}; from {one.low:.2f} to {one.high:.2f}" for one in known.values()]
    errors = [
        f"{one.family} {one.direction} without {one.left_out}: "
        f"off by {one.error_percent:.1f} % on its {one.points} points"
        for one in left_out
    ]
    return lines + (errors or ["one GPU and one head_dim only: nothing to leave out, the error is not known"])
