"""Record: what happened to one Cell; and the Run's head. Field by field as in schema/record.schema.json.

A number that is not known is None with a reason, never 0 or NaN.
"""

import hashlib
from typing import Any, Literal, get_args

import msgspec

from andrea_bench.problem import Problem

SCHEMA_VERSION = 1

Status = Literal["ok", "skipped", "unsupported", "wrong", "out_of_memory", "timeout", "throttled", "error"]
TimingMode = Literal["host_wall", "cuda_event", "cuda_graph"]
CacheState = Literal["warm", "cold"]
STATUSES: tuple[Status, ...] = get_args(Status)
TIMED: tuple[Status, ...] = ("ok", "throttled")


class Validity(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a Record's samples can be trusted: `valid`, `suspect` or `invalid`, with reasons."""

    verdict: Literal["valid", "suspect", "invalid"] = "valid"
    reasons: list[str] = []


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured: git commit of the tree, whether it is dirty, hash of the kernel's file."""

    git_commit: str | None = None
    dirty: bool | None = None
    kernel_source_hash: str | None = None


class Record(msgspec.Struct, kw_only=True):
    """What happened to one Cell on one device, in one timing mode and cache state.

    samples_us: one timing each, in microseconds; there exactly when status is `ok` or `throttled`.
    order: position of each sample in the sweep. block: which process or time block it came from: the unit
    of replication. round: samples of one Group with equal block and round are pairs.
    host_us: what the host saw of the same call, beside device timings (empty on a CPU).
    """

    schema_version: int = SCHEMA_VERSION
    cell_id: str
    suite: str
    op: str
    kernel: str
    problem: Problem
    device: str
    status: Status
    reason: str | None = None
    samples_us: list[float] = []
    host_us: list[float] = []
    timing_mode: TimingMode | None = None
    cache: CacheState | None = None
    order: list[int] = []
    block: list[int] = []
    round: list[int] = []
    flops: int
    min_bytes: int
    relative_error: float | None = None
    tolerance: float | None = None
    reference: str | None = None
    selected_backend: str | None = None
    compile_seconds: float | None = None
    peak_memory_bytes: int | None = None
    counters: dict[str, Any] = {}
    validity: Validity = Validity()
    started_at: str
    code: Code = Code()

    def key(self) -> tuple[str, str, str | None, str | None]:
        """What makes a Record unique in a Run."""
        return self.cell_id, self.device, self.timing_mode, self.cache


class RunHead(msgspec.Struct, kw_only=True):
    """run.json: how a Run was made and whether it is complete."""

    schema_version: int = SCHEMA_VERSION
    complete: bool = False
    started_at: str
    ended_at: str | None = None
    arguments: list[str] = []
    protocol: dict[str, Any] = {}
    seed: int = 0
    environment: dict[str, Any] = {}


_canonical = msgspec.json.Encoder(order="sorted")


def cell_id(suite: str, op: str, kernel: str, problem: Problem) -> str:
    """Stable hash of the Cell's canonical JSON (keys sorted, no spaces), 16 hex digits."""
    return CellHasher(problem).cell_id(suite, op, kernel)


class CellHasher:
    """cell_id for many kernels of one Problem: its JSON is made once."""

    def __init__(self, problem: Problem) -> None:
        self._problem = b'"problem":' + _canonical.encode(problem)

    def cell_id(self, suite: str, op: str, kernel: str) -> str:
        head = _canonical.encode({"kernel": kernel, "op": op})[:-1]
        text = head + b"," + self._problem + b',"suite":' + _canonical.encode(suite) + b"}"
        return hashlib.blake2b(text, digest_size=8).hexdigest()
