"""What a ranking says of the user's own split, in sentences; each holds the numbers that it is made of."""

from collections.abc import Iterator, Sequence
from math import log2
from typing import NamedTuple

import msgspec

from andrea_bench.explore.choice import Choice, Timing
from andrea_bench.explore.ranking import EXACT, surely_worse
from andrea_bench.predict import Prediction, Ratio
from andrea_bench.problem import ELEMENT_BYTES

# A difference below this is not worth a sentence of its own.
NEGLIGIBLE = 0.005
MOST_TIES = 6
# Units that take turns are worth a word where what that adds changes by more than this share of the bound.
IN_TURN = 0.05
# How busy the SMs are is worth a word where it changes by more than this share of the time.
BUSY = 0.1
# What a thread loads at once where rows are aligned to it.
WIDE_LOAD_BYTES = 16


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """A statement about `split` against `against`: their ratios of attention and of the layer, how known, and the
    numbers of the reasons, each as it is said. tied: the splits of the best's rank, all of them. doubts: why a
    measured time of either may be off."""

    text: str
    split: str | None = None
    against: str | None = None
    attention: Ratio | None = None
    layer: Ratio | None = None
    how: str | None = None
    numbers: dict[str, float] = {}
    tied: list[str] = []
    doubts: list[str] = []


def sentences(choices: Sequence[Choice], own: Choice | None, objective: str, *, rankable: bool) -> list[Sentence]:
    """What to know, the most important first. choices: best first."""
    doubts = {one.split: one.doubts for one in choices}
    return [
        msgspec.structs.replace(
            said, doubts=list(dict.fromkeys([*doubts.get(said.split or "", []), *doubts.get(said.against or "", [])]))
        )
        for said in _sentences(choices, own, objective, rankable=rankable)
    ]


def _sentences(choices: Sequence[Choice], own: Choice | None, objective: str, *, rankable: bool) -> list[Sentence]:
    usable = [one for one in choices if one.reason is None and one.layer is not None]
    if not usable:
        return []
    said = [] if rankable else [_not_rankable(usable)]
    best = usable[0]
    if own is None or own not in usable:
        if own is not None:
            said.append(Sentence(text=f"{own.split} can't be ranked: {own.reason}", split=own.split))
        tied = _tied(usable, best)
        return [*said, Sentence(text=f"the best is {best.split}{_ties(tied)}", split=best.split, tied=tied)]
    if rankable:
        said.append(_against_best(own, best, objective, _tied(usable, best)))
    if own.alignment.startswith("misaligned"):
        said.append(_misaligned(own))
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


def _tied(usable: Sequence[Choice], best: Choice) -> list[str]:
    return [one.split for one in usable if one.rank == 1 and one is not best]


def _ties(tied: Sequence[str]) -> str:
    more = f" and {len(tied) - MOST_TIES} more" if len(tied) > MOST_TIES else ""
    return f" (tied with {', '.join(tied[:MOST_TIES])}{more})" if tied else ""


def _against_best(own: Choice, best: Choice, objective: str, tied: list[str]) -> Sentence:
    if own is best:
        return Sentence(text=f"{own.split} is the best{_ties(tied)}", split=own.split, tied=tied)
    if objective in EXACT:
        same = not surely_worse(own, best, objective)
        text = f"{own.split} is as good as the best, {best.split}" if same else f"the best is {best.split}{_ties(tied)}"
        return Sentence(text=text, split=own.split, against=best.split, tied=tied)
    over = _over(own.layer, best.layer)
    how = _how(own, best)
    if not surely_worse(own, best, objective):
        text = f"{own.split} can't be told from the best, {best.split}: {_ratio(over)} of its layer time, {how}"
    else:
        text = f"{own.split} takes {_ratio(over)} of the layer time of the best, {best.split}, {how}"
    return Sentence(text=text, split=own.split, against=best.split, layer=over, how=how, tied=tied)


def _misaligned(own: Choice) -> Sentence:
    """What off rows are, in the Problem's own words, and how wide they are computed."""
    prediction = own.attention.prediction if own.attention else None
    text = f"{own.split} is {own.alignment}"
    numbers: dict[str, float] = {"row_bytes": own.problem.head_dim * ELEMENT_BYTES[own.problem.dtype]}
    if prediction and prediction.computed_width:
        numbers["computed_width"] = prediction.computed_width
        text += f"; computed {prediction.computed_width} wide"
    return Sentence(text=text, split=own.split, numbers=numbers)


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
    why, numbers = _why(one, own)
    return Sentence(
        text=f"{lead}{one.split} would take {', '.join(said)}, {_how(one, own)}" + (f": {why}" if why else ""),
        split=one.split,
        against=own.split,
        attention=attention,
        layer=layer,
        how=_how(one, own),
        numbers=numbers,
    )


def _why(one: Choice, own: Choice) -> tuple[str, dict[str, float]]:
    """The reasons in words, and their numbers: what makes it slower where it is slower, faster where it is faster."""
    found = [*_by_model(one, own), *_by_rows(one), *_by_facts(one), *_by_sizes(one, own)]
    attention = _over(one.attention, own.attention)
    slower = attention is None or attention.value > 1
    reasons = [reason for reason in found if reason.slows is None or reason.slows == slower]
    return ", ".join(r.text for r in reasons), {k: v for r in reasons for k, v in r.numbers.items()}


class Reason(NamedTuple):
    """One difference between two splits; slows: whether it makes the first the slower one, None if either."""

    text: str
    numbers: dict[str, float]
    slows: bool | None


def _by_model(one: Choice, own: Choice) -> Iterator[Reason]:
    """What the predictions of attention differ in."""
    prediction = one.attention.prediction if one.attention else None
    before = own.attention.prediction if own.attention else None
    if prediction is None or not prediction.computed_width:
        return
    width = prediction.computed_width
    if width > one.problem.head_dim:
        yield Reason(f"computed {width} wide", {"computed_width": width}, True)
    if before is None:
        return
    if prediction.bound_by != before.bound_by:
        yield Reason(f"bound by {prediction.bound_by} instead of {before.bound_by}", {}, None)
    turns, turns_before = _in_turn(prediction), _in_turn(before)
    if abs(turns - turns_before) > IN_TURN:
        text = f"exp, in turn with the rest, adds {turns:.0%} instead of {turns_before:.0%} to the bound"
        yield Reason(text, {"exp_in_turn": turns, "exp_in_turn_against": turns_before}, turns > turns_before)
    busy, busy_before = prediction.tail_efficiency, before.tail_efficiency
    if busy and busy_before and abs(busy - busy_before) > BUSY:
        numbers = {"tail_efficiency": busy, "tail_efficiency_against": busy_before}
        yield Reason(f"SMs busy {busy:.0%} of the time instead of {busy_before:.0%}", numbers, busy < busy_before)


def _by_rows(one: Choice) -> Iterator[Reason]:
    row_bytes = one.problem.head_dim * ELEMENT_BYTES[one.problem.dtype]
    if row_bytes % WIDE_LOAD_BYTES:
        numbers = {"row_bytes": float(row_bytes), "wide_load_bytes": float(WIDE_LOAD_BYTES)}
        yield Reason(f"rows of {row_bytes} bytes, no multiple of {WIDE_LOAD_BYTES}", numbers, True)


def _by_facts(one: Choice) -> Iterator[Reason]:
    """What the compiler made of the first."""
    for facts in one.compiled:
        kernel = facts["kernel"]
        loads = [int(width) for name in ("global_load_bytes", "async_copy_bytes") for width in facts.get(name) or ()]
        if loads and min(loads) < WIDE_LOAD_BYTES:
            text = f"loads of {min(loads)} bytes in {kernel} (compiled)"
            yield Reason(text, {f"load_bytes of {kernel}": min(loads)}, True)
        spilled = facts.get("spill_store_bytes")
        if spilled:
            text = f"{spilled} bytes spilled in {kernel} (compiled)"
            yield Reason(text, {f"spill_store_bytes of {kernel}": spilled}, True)


def _by_sizes(one: Choice, own: Choice) -> Iterator[Reason]:
    scores = one.problem.n_head / own.problem.n_head
    if scores != 1:
        yield Reason(f"{scores:.3g} times the scores to exponentiate", {"scores_ratio": scores}, scores > 1)
    for name, ratio, what in (
        ("kv_cache_ratio", one.kv_cache_bytes_per_token / own.kv_cache_bytes_per_token, "the KV cache"),
        ("parameters_ratio", one.parameters / own.parameters, "the parameters"),
    ):
        if ratio != 1:
            yield Reason(f"{ratio:.3g} times {what}", {name: ratio}, None)


def _in_turn(prediction: Prediction) -> float:
    """What units that take turns add to the bound."""
    return prediction.reachable_us / prediction.bound_us - 1


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
