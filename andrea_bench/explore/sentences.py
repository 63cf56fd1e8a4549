"""What a ranking says of the user's own split, in sentences; each holds the numbers that it is made of."""

from collections.abc import Sequence
from math import log2

import msgspec

from andrea_bench.explore.choice import Choice, Timing
from andrea_bench.explore.ranking import EXACT, surely_worse
from andrea_bench.predict import Ratio

# A difference below this is not worth a sentence of its own.
NEGLIGIBLE = 0.005
MOST_TIES = 6
# What a thread loads at once where rows are aligned to it.
WIDE_LOAD_BYTES = 16


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """A statement about `split` against `against`: their ratios of attention and of the layer, and how known."""

    text: str
    split: str | None = None
    against: str | None = None
    attention: Ratio | None = None
    layer: Ratio | None = None
    how: str | None = None


def sentences(choices: Sequence[Choice], own: Choice | None, objective: str, *, rankable: bool) -> list[Sentence]:
    """What to know, the most important first. choices: best first."""
    usable = [one for one in choices if one.reason is None and one.layer is not None]
    if not usable:
        return []
    said = [] if rankable else [_not_rankable(usable)]
    best = usable[0]
    if own is None or own not in usable:
        if own is not None:
            said.append(Sentence(text=f"{own.split} can't be ranked: {own.reason}", split=own.split))
        return [*said, Sentence(text=f"the best is {best.split}" + _ties(usable, best), split=best.split)]
    if rankable:
        said.append(_against_best(own, best, objective, _ties(usable, best)))
    others = [one for one in usable if one is not own]
    better = [one for one in others if surely_worse(own, one, objective)]
    if better:
        said.append(_compared(min(better, key=lambda one: _distance(one, own)), own, "nearest better neighbour: "))
    said += [_compared(one, own, "") for one in _neighbours(own, others) if one not in better]
    return said


def _not_rankable(usable: Sequence[Choice]) -> Sentence:
    slowest, best = usable[-1], usable[0]
    over = _over(slowest.layer, best.layer)
    return Sentence(
        text=f"not ranked: even {slowest.split} over {best.split} is {_ratio(over)}, which may be no difference; "
        "measure (--measure, --run) or fit the model on a Run (--fit-from)",
        split=slowest.split,
        against=best.split,
        layer=over,
        how=_how(slowest, best),
    )


def _ties(usable: Sequence[Choice], best: Choice) -> str:
    tied = [one.split for one in usable if one.rank == 1 and one is not best]
    more = f" and {len(tied) - MOST_TIES} more" if len(tied) > MOST_TIES else ""
    return f" (tied with {', '.join(tied[:MOST_TIES])}{more})" if tied else ""


def _against_best(own: Choice, best: Choice, objective: str, ties: str) -> Sentence:
    if own is best:
        return Sentence(text=f"{own.split} is the best{ties}", split=own.split)
    if objective in EXACT:
        same = not surely_worse(own, best, objective)
        text = f"{own.split} is as good as the best, {best.split}" if same else f"the best is {best.split}{ties}"
        return Sentence(text=text, split=own.split, against=best.split)
    over = _over(own.layer, best.layer)
    how = _how(own, best)
    if not surely_worse(own, best, objective):
        text = f"{own.split} can't be told from the best, {best.split}: {_ratio(over)} of its layer time, {how}"
    else:
        text = f"{own.split} takes {_ratio(over)} of the layer time of the best, {best.split}, {how}"
    return Sentence(text=text, split=own.split, against=best.split, layer=over, how=how)


def _neighbours(own: Choice, others: Sequence[Choice]) -> list[Choice]:
    """The nearest split with wider and the one with narrower heads."""
    wider = [one for one in others if one.problem.head_dim > own.problem.head_dim]
    narrower = [one for one in others if one.problem.head_dim < own.problem.head_dim]
    return [min(side, key=lambda one: _distance(one, own)) for side in (wider, narrower) if side]


def _distance(one: Choice, own: Choice) -> tuple[float, str]:
    pairs = [(getattr(one.problem, name), getattr(own.problem, name)) for name in ("head_dim", "n_kv_head", "n_head")]
    return sum(abs(log2(a / b)) for a, b in pairs), one.split


def _compared(one: Choice, own: Choice, lead: str) -> Sentence:
    """`one` instead of the user's own: what it costs or saves, surely or not, and why."""
    attention, layer = _over(one.attention, own.attention), _over(one.layer, own.layer)
    said = [f"{_change(found)} in {name}" for name, found in (("attention", attention), ("the layer", layer)) if found]
    why = _why(one, own)
    return Sentence(
        text=f"{lead}{one.split} would take {', '.join(said)}, {_how(one, own)}" + (f": {why}" if why else ""),
        split=one.split,
        against=own.split,
        attention=attention,
        layer=layer,
        how=_how(one, own),
    )


def _why(one: Choice, own: Choice) -> str:
    reasons = []
    timing, mine = one.attention, own.attention
    if timing and timing.prediction and timing.prediction.computed_width:
        width = timing.prediction.computed_width
        if width > one.problem.head_dim:
            reasons.append(f"computed {width} wide")
        before = mine.prediction.bound_by if mine and mine.prediction else None
        if before and timing.prediction.bound_by != before:
            reasons.append(f"bound by {timing.prediction.bound_by} instead of {before}")
    for facts in one.compiled:
        loads = [int(width) for name in ("global_load_bytes", "async_copy_bytes") for width in facts.get(name) or ()]
        if loads and min(loads) < WIDE_LOAD_BYTES:
            reasons.append(f"loads of {min(loads)} bytes in {facts['kernel']} (compiled)")
        if facts.get("spill_store_bytes"):
            reasons.append(f"{facts['spill_store_bytes']} bytes spilled in {facts['kernel']} (compiled)")
    scores = one.problem.n_head / own.problem.n_head
    if scores != 1:
        reasons.append(f"{scores:.3g} times the scores to exponentiate")
    cache = one.kv_cache_bytes_per_token / own.kv_cache_bytes_per_token
    if cache != 1:
        reasons.append(f"{cache:.3g} times the KV cache")
    return ", ".join(reasons)


def _over(one: Timing | None, other: Timing | None) -> Ratio | None:
    return one.over(other) if one and other else None


def _ratio(found: Ratio | None) -> str:
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})" if found else "unknown"


def _change(found: Ratio) -> str:
    share = found.value - 1
    if abs(share) < NEGLIGIBLE:
        return "as long"
    sure = "" if found.low > 1 or found.high < 1 else " (within the error)"
    return f"{abs(share):.0%} {'longer' if share > 0 else 'less'}{sure}"


def _how(one: Choice, other: Choice) -> str:
    hows = {timing.how for timing in (one.layer, other.layer) if timing}
    return " and ".join(sorted(hows))
