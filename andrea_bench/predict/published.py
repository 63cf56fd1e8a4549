"""Figures that others published, as Points beside the model's bound; and the sweeps of matrix products that
lie outside the project."""

import csv
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from andrea_bench.errors import BadInput
from andrea_bench.predict.cells import cell
from andrea_bench.predict.matrix_product import matmul
from andrea_bench.predict.prediction import Prediction
from andrea_bench.problem import Problem

Role = Literal["fit", "check"]
# Attention sweeps: tokens in all, and width of all heads together.
TOKENS, WIDTH = 16384, 2048
# Shorter sequences are no target of the model: their launches and tails are another story.
LEAST_SEQ_LEN = 1024
# The sweeps of arXiv 2401.14489, as files NAME_GPU.csv with the columns batch, m, n, k, tflops.
SWEEP_GPUS = {"a100": "a100_sxm4_40gb", "v100": "v100_sxm2_32gb"}
SWEEPS = ("m_sweep", "ksweep_low")
SWEEP_SOURCE = "EleutherAI/cookbook 27dff48, sizing/results/gemm_data/mm (arXiv 2401.14489), float16"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One published figure and the Prediction of the same launch. series: what it is a point of."""

    series: str
    size: int
    role: Role
    source: str
    measured_us: float
    predicted: Prediction
    head_dim: int | None = None


@cache
def published() -> list[Measured]:
    """The figures of published.toml."""
    document = tomllib.loads((Path(__file__).parent / "published.toml").read_text(encoding="utf-8"))
    found = [one for entry in document["attention"] for one in _attention(entry)]
    return found + [_matmul(entry) for entry in document["matmul"]]


@cache
def by_head_dim() -> list[Measured]:
    """What this project measured of others' kernels, many head_dims at one length; no efficiency rests on it."""
    document = tomllib.loads((Path(__file__).parent / "published.toml").read_text(encoding="utf-8"))
    return [one for entry in document["by_head_dim"] for one in _by_head_dim(entry)]


def _by_head_dim(entry: dict[str, Any]) -> list[Measured]:
    sizes = {name: entry[name] for name in ("batch", "n_head", "seq_len", "causal", "direction")}
    mask = "causal" if entry["causal"] else "full"
    made = []
    for head_dim, tflops in zip(entry["head_dim"], entry["tflops"], strict=True):
        problem = Problem(head_dim=head_dim, dtype="bfloat16", **sizes)
        made.append(
            Measured(
                series=f"{entry['kernel']}, {mask}, {entry['direction']}",
                size=entry["seq_len"],
                role=entry["role"],
                source=entry["source"],
                measured_us=problem.flops("attention") / tflops / 1e6,
                predicted=cell(entry["gpu"], problem, op="attention", kernel=entry["kernel"]),
                head_dim=head_dim,
            )
        )
    return made


def _attention(entry: dict[str, Any]) -> list[Measured]:
    mask = "causal" if entry["causal"] else "full"
    series = f"{entry['kernel']}, head_dim {entry['head_dim']}, {mask}, {entry['direction']}"
    made = []
    for seq_len, tflops in zip(entry["seq_len"], entry["tflops"], strict=True):
        problem = Problem(
            batch=TOKENS // seq_len,
            seq_len=seq_len,
            n_head=WIDTH // entry["head_dim"],
            head_dim=entry["head_dim"],
            dtype="float16",
            causal=entry["causal"],
            direction=entry["direction"],
        )
        made.append(
            Measured(
                series=series,
                size=seq_len,
                role=entry["role"],
                source=entry["source"],
                measured_us=problem.flops("attention") / tflops / 1e6,
                predicted=cell(entry["gpu"], problem, op="attention", kernel=entry["kernel"]),
                head_dim=entry["head_dim"],
            )
        )
    return made


def _matmul(entry: dict[str, Any]) -> Measured:
    m, n, k = entry["m"], entry["n"], entry["k"]
    return Measured(
        series=f"matmul {m} x {n} x {k}, {entry['dtype']}",
        size=m,
        role=entry["role"],
        source=entry["source"],
        measured_us=2 * m * n * k / entry["tflops"] / 1e6,
        predicted=matmul(entry["gpu"], m=m, n=n, k=k, dtype=entry["dtype"]),
    )


def gemm_sweeps(folder: Path) -> list[Measured]:
    """The matrix-product sweeps under `folder`: the slowest of 200 runs by a host timer, warm cache. Raises
    BadInput that names the file it can't read."""
    return [one for sweep in SWEEPS for gpu in SWEEP_GPUS for one in _sweep(folder / f"{sweep}_{gpu}.csv", sweep, gpu)]


def _sweep(path: Path, sweep: str, gpu: str) -> list[Measured]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(stream)]
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: not a sweep of matrix products: {error}") from error
    found = []
    for row in rows:
        batch, m, n, k = (int(row[name]) for name in ("batch", "m", "n", "k"))
        aligned = "" if n % 8 == 0 else ", n no multiple of 8"
        found.append(
            Measured(
                series=f"{sweep}{aligned}",
                size=n,
                role="fit" if _is_large(sweep, n) else "check",
                source=SWEEP_SOURCE,
                measured_us=2 * batch * m * n * k / row["tflops"] / 1e6,
                predicted=matmul(SWEEP_GPUS[gpu], m=m, n=n, k=k, batch=batch, dtype="float16"),
            )
        )
    return found


def _is_large(sweep: str, n: int) -> bool:
    """Whether a point is of a size that the model is meant for; smaller ones are bound by the launch."""
    return n >= (1024 if sweep == "m_sweep" else 256)


def is_target(one: Measured) -> bool:
    """Whether the accuracy that the project promises is about this size."""
    if one.series.startswith(SWEEPS):
        return _is_large(one.series.partition(",")[0], one.size)
    return one.head_dim is None or one.size >= LEAST_SEQ_LEN
