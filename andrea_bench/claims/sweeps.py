"""The shape sweeps of arXiv 2401.14489 on this machine: each rule's better shape against the worse ones it is said to
beat, sample by sample in turn.

On a GPU in the paper's sizes (in bfloat16, where it had float16; its full range of sizes only as far as a rule needs
it); on a CPU in sizes that take milliseconds. A ratio is of time for the same work, so that 65 columns are not blamed
for being more than 64. A rule holds where that ratio is surely below 1, and fails where a gain of NO_GAIN is ruled
out (see `faster`).
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from andrea_bench.claims.finding import Evidence
from andrea_bench.claims.measured import NO_GAIN, faster

if TYPE_CHECKING:
    from andrea_bench.measure.counters import Watch

SEED = 20240
WARMUP, SAMPLES = 3, 31


@dataclass(frozen=True)
class Trial:
    """call: what is timed. work: how much of what the sweep's rule is about it does, in any unit."""

    call: Callable[[], Any]
    work: float


@dataclass(frozen=True)
class Sizes:
    """Of each sweep: the paper's, or some for a CPU."""

    vocabulary: tuple[int, int, int]  # tokens, d_model, columns
    low: tuple[int, int, int]  # ksweep_low: tokens, d_model, columns
    rows: tuple[int, ...]  # m_sweep
    rows_k: int
    attention: tuple[int, int, int]  # batch, heads, seq_len
    layer: tuple[int, int, int]  # width, heads, seq_len
    batches: tuple[int, ...]
    parallel: tuple[int, int, int, int]  # batch, width, heads, seq_len
    swiglu: tuple[int, int, int, tuple[int, ...]]  # tokens, d_model, 8/3 of it, widths near it
    width: int  # of attention with fewer heads


PAPER = Sizes(
    vocabulary=(8192, 14336, 51200),
    low=(27648, 4096, 320),
    rows=(256, 1024, 4096, 8192),
    rows_k=4096,
    attention=(4, 128, 2048),
    layer=(768, 12, 1024),
    batches=(1, 2, 4, 8, 16, 32),
    parallel=(8, 4096, 32, 1024),
    swiglu=(8192, 4096, 10922, (10944, 11008)),
    width=2048,
)
SMALL = Sizes(
    vocabulary=(512, 896, 3200),
    low=(864, 256, 320),
    rows=(16, 64, 256, 512),
    rows_k=512,
    attention=(1, 4, 256),
    layer=(256, 4, 128),
    batches=(1, 2, 4, 8),
    parallel=(1, 512, 8, 128),
    swiglu=(256, 512, 1365, (1368, 1408)),
    width=512,
)
# (label of the better, label of the worse), of the Trials of one sweep.
Pairs = list[tuple[str, str]]
Sweep = Callable[[], tuple[dict[str, Trial], Pairs]]


class Sweeps:
    """Makes the Trials of each rule on a device."""

    def __init__(self, device: str, sizes: Sizes | None = None) -> None:
        import torch

        cuda = device.startswith("cuda")
        self.device, self.sizes = device, sizes or (PAPER if cuda else SMALL)
        self._torch = torch
        self._dtype = torch.bfloat16 if cuda else torch.float32
        self._generator = torch.Generator(device).manual_seed(SEED)

    def normal(self, *shape: int) -> Any:
        return self._torch.randn(*shape, generator=self._generator, dtype=self._dtype, device=self.device)

    def product(self, m: int, k: int, n: int) -> Trial:
        return Trial(partial(self._torch.matmul, self.normal(m, k), self.normal(k, n)), m * n * k)

    def columns(self, size: tuple[int, int, int], others: Sequence[int]) -> tuple[dict[str, Trial], Pairs]:
        """A product of so many columns against others of nearly as many. size: rows, depth, columns."""
        m, k, n = size
        trials = {f"{m} x {k} x {columns}": self.product(m, k, columns) for columns in (n, *others)}
        return trials, _first_over_the_others(trials)

    def attention(self, head_dim: int, kind: str, heads: int | None = None) -> Trial:
        """One part of attention over all heads: `Q K^T`, `P V`, or `flash`."""
        batch, n_head, seq_len = self.sizes.attention
        n_head = heads or n_head
        q, k = (self.normal(batch, n_head, seq_len, head_dim) for _ in range(2))
        work = n_head * head_dim
        if kind == "Q K^T":
            return Trial(partial(self._torch.matmul, q, k.transpose(-1, -2)), work)
        if kind == "P V":
            return Trial(partial(self._torch.matmul, self.normal(batch, n_head, seq_len, seq_len), k), work)
        attend = self._torch.nn.functional.scaled_dot_product_attention
        return Trial(partial(attend, q, k, k, is_causal=True), work)

    def head_dims(self, kind: str, better: int, worse: Sequence[int]) -> tuple[dict[str, Trial], Pairs]:
        trials = {f"{kind}, head_dim {d}": self.attention(d, kind) for d in (better, *worse)}
        return trials, _first_over_the_others(trials)

    def layer(self, batch: int, width: int, heads: int, inner: int, seq_len: int, work: float) -> Trial:
        """A fused projection, attention and the output projection of `heads` heads that are `inner` wide in all."""
        x, w_qkv, w_o = self.normal(batch, seq_len, width), self.normal(width, 3 * inner), self.normal(inner, width)
        attend = self._torch.nn.functional.scaled_dot_product_attention

        def run() -> Any:
            q, k, v = (x @ w_qkv).view(batch, seq_len, 3, heads, inner // heads).permute(2, 0, 3, 1, 4)
            return attend(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, seq_len, inner) @ w_o

        return Trial(run, work)

    def by_rule(self) -> Iterator[tuple[str, Sweep]]:
        """Each sweep with the rule that it is about; made one after the other, so that memory holds one alone."""
        s = self.sizes
        n = s.vocabulary[2]
        yield "vocabulary", lambda: self.columns(s.vocabulary, (n - 1, n + 8))
        yield "head-dim", lambda: self.columns(s.low, (s.low[2] + 1, s.low[2] + 2, s.low[2] + 8))
        for kind in ("Q K^T", "P V", "flash"):
            yield "head-dim", partial(self.head_dims, kind, 64, (65, 66, 72))
        yield "micro-batch", self._rows
        yield "micro-batch", self._batches
        yield "tensor-parallel", self._parallel
        yield "swiglu", self._swiglu
        yield "fewer-heads", self._fewer_heads

    def _rows(self) -> tuple[dict[str, Trial], Pairs]:
        k = self.sizes.rows_k
        trials = {f"{m} x {k} x {k}": self.product(m, k, k) for m in self.sizes.rows}
        return trials, _each_over_the_one_before(trials)

    def _batches(self) -> tuple[dict[str, Trial], Pairs]:
        width, heads, seq_len = self.sizes.layer
        trials = {
            f"layer of {width}, batch {b}": self.layer(b, width, heads, width, seq_len, b) for b in self.sizes.batches
        }
        return trials, _each_over_the_one_before(trials)

    def _parallel(self) -> tuple[dict[str, Trial], Pairs]:
        batch, width, heads, seq_len = self.sizes.parallel
        trials = {
            f"layer of {width}, share of {t}": self.layer(batch, width, heads // t, width // t, seq_len, 1 / t)
            for t in (1, 2, 4, 8)
        }
        return trials, _first_over_the_others(trials)

    def _swiglu(self) -> tuple[dict[str, Trial], Pairs]:
        m, k, third, near = self.sizes.swiglu
        trials = {f"{m} x {k} x {n}": self.product(m, k, n) for n in (third, *near)}
        first, *rest = trials
        return trials, [(better, first) for better in rest]

    def _fewer_heads(self) -> tuple[dict[str, Trial], Pairs]:
        width = self.sizes.width
        trials = {
            f"{kind}, {width // d} x {d}": self.attention(d, kind, width // d)
            for kind in ("flash", "Q K^T")
            for d in (32, 64, 128)
        }
        names = list(trials)
        return trials, [(names[i + 1], names[i]) for i in (0, 1, 3, 4)]


def _first_over_the_others(trials: Mapping[str, Trial]) -> Pairs:
    first, *others = trials
    return [(first, other) for other in others]


def _each_over_the_one_before(trials: Mapping[str, Trial]) -> Pairs:
    names = list(trials)
    return list(zip(names[1:], names[:-1], strict=True))


def measure_rules(
    device: str, machine: str, samples: int = SAMPLES, sizes: Sizes | None = None
) -> dict[str, list[Evidence]]:
    """Evidence by rule, of everything that fits the device; a sweep that does not fit says so. machine: its name."""
    from andrea_bench.measure.allocator import keep_freed_memory
    from andrea_bench.measure.counters import Watch
    from andrea_bench.measure.worker import gpu_identity

    # Else a CPU's larger shapes pay for fresh pages at each call.
    keep_freed_memory()
    found: dict[str, list[Evidence]] = {}
    sweeps, watch = Sweeps(device, sizes), Watch(device, *gpu_identity(device))
    for rule, make in sweeps.by_rule():
        evidence = found.setdefault(rule, [])
        try:
            evidence += _swept(make, watch, device, machine, samples)
        except (MemoryError, RuntimeError) as error:
            # Out of memory, or a shape that this torch refuses: the other sweeps go on.
            reason = str(error).partition("\n")[0] or type(error).__name__
            evidence.append(Evidence(on=machine, how="measured", finding="not_testable_here",
                                     text=f"a sweep of the paper could not run: {reason}",
                                     numbers={"reason": reason}))  # fmt: skip
    return found


def _swept(make: Sweep, watch: "Watch", device: str, machine: str, samples: int) -> list[Evidence]:
    """Evidence of one sweep, whose tensors end with this call."""
    with one_thread():
        trials, pairs = make()
        watch.before()
        times = in_turn(trials, device, samples)
        doubts = watch.after().validity(converged=True).reasons
    return [_doubted(_compared(machine, one, other, trials, times), doubts) for one, other in pairs]


def _doubted(evidence: Evidence, doubts: Sequence[str]) -> Evidence:
    """What was measured beside other work, or throttled, decides nothing: other work hits long calls more often
    than short ones, which taking turns does not even out."""
    if not doubts:
        return evidence
    return msgspec.structs.replace(
        evidence,
        finding="not_testable_here",
        text=f"{evidence.text} (doubtful: {'; '.join(doubts)})",
        numbers={**evidence.numbers, "doubts": list(doubts)},
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """As every measurement on a CPU here."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_turn(trials: Mapping[str, Trial], device: str, samples: int) -> dict[str, list[float]]:
    """Samples in microseconds of each Trial, one of each in turn, in an order that SEED shuffles for every turn."""
    import torch

    from andrea_bench.measure.clock import make_clock

    clock = make_clock("cuda_event" if device.startswith("cuda") else "host_wall", "warm", device)
    times: dict[str, list[float]] = {name: [] for name in trials}
    order, generator = list(trials.items()), random.Random(SEED)
    with torch.no_grad():
        for turn in range(-WARMUP, samples):
            generator.shuffle(order)
            for name, trial in order:
                time_us, _ = clock.sample(trial.call)
                if turn >= 0:
                    times[name].append(time_us)
    return times


def _compared(
    machine: str, one: str, other: str, trials: Mapping[str, Trial], times: Mapping[str, list[float]]
) -> Evidence:
    from andrea_bench.statistics import paired_ratio

    over = paired_ratio(times[one], times[other], [0] * len(times[one]))
    per_work = trials[other].work / trials[one].work
    value, low, high = (part * per_work for part in (over.ratio, over.low, over.high))
    outcome, sure = faster(low, high)
    return Evidence(
        on=f"{machine}, {one} over {other}",
        how="measured",
        finding=outcome,
        text=f"{value:.2f} ({low:.2f} to {high:.2f}) of the time for the same work: {sure}",
        numbers={"ratio": value, "low": low, "high": high, "no_gain": NO_GAIN,
                 "samples_us": {name: times[name] for name in (one, other)}},
    )  # fmt: skip
