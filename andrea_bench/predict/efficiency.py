"""Efficiency: which share of its bound a kernel family reaches on an architecture. One number each, with its
range and its source, in efficiencies.toml; refitted numbers (see fit.py) can take their place."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from andrea_bench.errors import BadInput

Key = tuple[str, str, str]  # compute capability, family, direction


# A card can clock above its stated peak, and a kernel overlap more than its structure was taken to allow;
# beyond this it is an error.
MOST = 1.2


class Efficiency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """value: what the kernel could reach (see Prediction.reachable_us) over its time; low and high: its range
    over what it was fitted on, or by judgement for a prior. fitted: whether it was fitted (then `source` names
    the data) or is quoted or recalled. least_head_dim, most_head_dim: of the attention that it was fitted on.
    outside: why it may not hold where it is used. spread: how far apart two shapes of the family reach into
    their bounds, as a factor; it outlives an error of the level, which two shapes on one GPU share (None: not
    looked up yet).
    """

    compute_capability: str
    family: str
    direction: str = "forward"
    value: float
    low: float
    high: float
    fitted: bool
    source: str
    least_head_dim: int | None = None
    most_head_dim: int | None = None
    outside: tuple[str, ...] = ()
    spread: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.value <= self.high <= MOST:
            raise BadInput(
                f"efficiency of {self.family} on {self.compute_capability}: {self.low}, {self.value}, "
                f"{self.high} are no range between 0 and {MOST}"
            )

    def scaled(self, share: float) -> "Efficiency":
        """The same, of a GPU that sustains only that share of its peak."""
        scaled = {name: getattr(self, name) * share for name in ("value", "low", "high")}
        return msgspec.structs.replace(self, **scaled)

    def at_head_dim(self, head_dim: int) -> "Efficiency":
        """The same, used at that head_dim: with a reason in `outside` where none like it was fitted on."""
        if self.least_head_dim is None or self.most_head_dim is None:
            return self
        if self.least_head_dim <= head_dim <= self.most_head_dim:
            return self
        reason = f"head_dim {head_dim}: fitted from {self.least_head_dim} to {self.most_head_dim}"
        return msgspec.structs.replace(self, outside=(*self.outside, reason))

    @property
    def key(self) -> Key:
        return self.compute_capability, self.family, self.direction

    @property
    def basis(self) -> str:
        how = "fitted on" if self.fitted else "prior from"
        return (
            f"efficiency {self.value:.2f} of {self.family} {self.direction} on compute capability "
            f"{self.compute_capability}, {how} {self.source}"
        )


# Refitted efficiencies, which go before the shipped ones.
Known = Mapping[Key, Efficiency] | None


@cache
def efficiencies() -> dict[Key, Efficiency]:
    """All that the project ships, by compute capability, family and direction."""
    path = Path(__file__).parent / "efficiencies.toml"
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    found = msgspec.convert(document["efficiency"], list[Efficiency])
    return {one.key: one for one in found}


def find_efficiency(compute_capability: str, family: str, direction: str, known: Known = None) -> Efficiency:
    """The efficiency of a family on an architecture. Where none is known, that of the nearest architecture
    that is (first an older one), then of the forward pass, with the reason in `outside`; where the family is
    unknown everywhere, the range that an uncalibrated model deserves.

    known: refitted efficiencies, which go before the shipped ones.
    """
    table = efficiencies() | dict(known or {})
    for asked in dict.fromkeys([direction, "forward"]):
        candidates = [one for one in table.values() if one.family == family and one.direction == asked]
        if not candidates:
            continue
        here = float(compute_capability)
        chosen = min(candidates, key=lambda one: _distance(here, float(one.compute_capability)))
        outside = chosen.outside
        if chosen.compute_capability != compute_capability:
            outside += (f"no efficiency known on {compute_capability}: that of {chosen.compute_capability}",)
        if asked != direction:
            outside += (f"no efficiency known for {direction}: that of forward",)
        return msgspec.structs.replace(chosen, outside=outside, spread=_spread(chosen, candidates))
    # Published uncalibrated models miss by up to 60 % over their bound.
    return Efficiency(
        compute_capability=compute_capability,
        family=family,
        direction=direction,
        value=0.7,
        low=0.625,
        high=1.0,
        fitted=False,
        source="nothing: an uncalibrated bound, 0 to 60 % too low",
        outside=(f"nothing is known of {family}",),
        spread=1.6,
    )


def _spread(chosen: Efficiency, candidates: list[Efficiency]) -> float:
    """How far the ratio of two draws from the range may be off, as a factor; of the architectures where the
    family was fitted the widest, as the range of a prior is mostly that of its level."""
    fitted = [chosen] if chosen.fitted else [one for one in candidates if one.fitted]
    return max(spread_of_range(one.low, one.high) for one in fitted or [chosen])


def spread_of_range(low: float, high: float) -> float:
    """The range is that of 90 % of the draws, so is the result for the ratio of two of them."""
    return (high / low) ** (0.5 * 2**0.5)


def _distance(here: float, there: float) -> tuple[bool, float, bool]:
    return _MATRIX_INSTRUCTION.get(here) != _MATRIX_INSTRUCTION.get(there), abs(here - there), there > here


# Architectures of one kind of matrix instruction are nearer to one another than their numbers say.
_MATRIX_INSTRUCTION = {7.0: "wmma", 7.5: "wmma", 8.0: "mma.sync", 8.6: "mma.sync", 8.9: "mma.sync",
                       9.0: "wgmma", 10.0: "tcgen05", 12.0: "mma.sync"}  # fmt: skip
