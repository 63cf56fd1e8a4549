"""Protocol: how a Cell is timed. Two Runs of different protocols are not comparable."""

from typing import Any, Literal

import msgspec

from andrea_bench.errors import BadInput
from andrea_bench.record import CacheState, TimingMode


class Protocol(msgspec.Struct, frozen=True, kw_only=True):
    """How each Group is timed.

    warmup_rounds: untimed rounds first (compilation and first calls come before and are timed apart).
    min_samples, max_samples: per kernel and process. target: stop when the interval of every kernel's
    median is at most this share of the median to either side (0.02 is 2 %). time_limit_s: sampling time of
    a Group in one process; what was not reached by then is said. kernel_limit_s: after this long without
    news a kernel counts as hung and its process is killed. cache: `cold` flushes the L2 (CUDA) or twice the
    last-level cache (CPU) before each sample, outside the timed region. threads: of each measuring process
    on a CPU. processes: fresh processes over which the samples are spread. seed: of inputs and order.
    energy_window_s: on a GPU, seconds for which each kernel runs back to back, after its samples, to count its
    energy; 0: not counted.
    """

    warmup_rounds: int = 2
    min_samples: int = 10
    max_samples: int = 1000
    target: float = 0.02
    time_limit_s: float = 4.0
    kernel_limit_s: float = 120.0
    timing_mode: TimingMode = "host_wall"
    cache: CacheState = "warm"
    threads: int = 1
    processes: int = 1
    seed: int = 20240
    energy_window_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("warmup_rounds", "min_samples", "max_samples", "threads", "processes"):
            if getattr(self, name) < (0 if name == "warmup_rounds" else 1):
                raise BadInput(f"{name} {getattr(self, name)} is not positive")
        for name in ("target", "time_limit_s", "kernel_limit_s"):
            if not 0 < getattr(self, name) < 1e9:
                raise BadInput(f"{name} {getattr(self, name)} is not a positive number")
        if not 0 <= self.seed < 2**63:
            raise BadInput(f"seed {self.seed} is not in 0 to 2**63 - 1")
        if not 0 <= self.energy_window_s < 1e6:
            raise BadInput(f"energy_window_s {self.energy_window_s} is no number of seconds")
        if self.max_samples < self.min_samples:
            raise BadInput(f"max_samples {self.max_samples} is below min_samples {self.min_samples}")

    def comparable(self) -> dict[str, Any]:
        """The fields that two Runs must share to be compared or resumed. How many samples were taken, and
        for how long, only widens or narrows intervals."""
        names: tuple[Literal["timing_mode", "cache", "threads"], ...] = ("timing_mode", "cache", "threads")
        return {name: getattr(self, name) for name in names}
