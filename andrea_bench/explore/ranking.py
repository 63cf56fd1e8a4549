"""Ranks with ties, and the Pareto set: a difference counts where its interval says that it is one."""

from collections.abc import Sequence

from andrea_bench.explore.choice import Choice, objective_value

EXACT = ("kv_cache", "memory")


def rank(choices: Sequence[Choice], objective: str) -> bool:
    """Set `rank` and `pareto` of the choices that have a value and no reason against them.

    A rank is one more than the number of choices that are surely better, so that what can't be told from the
    best is a tie with it, however wide its interval. Returns False, and sets no ranks, where the intervals are
    too wide to tell any two of several choices apart.
    """
    value = objective_value(objective)
    ranked = [one for one in choices if one.reason is None and value(one) is not None]
    for one in ranked:
        one.pareto = not any(dominates(other, one) for other in ranked if other is not one)
    ranks = [1 + sum(surely_worse(one, other, objective) for other in ranked) for one in ranked]
    values = {value(one) for one in ranked}
    if objective not in EXACT and len(values) > 1 and max(ranks) == 1:
        return False
    for one, found in zip(ranked, ranks, strict=True):
        one.rank = found
    return True


def surely_worse(one: Choice, other: Choice, objective: str = "time") -> bool:
    """Whether `one` needs more than `other` by more than the error: whole interval of the ratio above 1."""
    if objective in EXACT:
        value = objective_value(objective)
        return (value(one) or 0) > (value(other) or 0)
    if objective == "energy" and one.energy_how == other.energy_how == "measured":
        error = 1 + (one.energy_relative_error or 0) + (other.energy_relative_error or 0)
        return (one.energy_joules or 0) > (other.energy_joules or 0) * error
    # Predicted energy is time at one power: its ratio is that of the times.
    return one.layer is not None and other.layer is not None and one.layer.over(other.layer).low > 1


def dominates(one: Choice, other: Choice) -> bool:
    """Whether `one` is as good as `other` in time, KV cache and parameters, and better in one of them."""
    sizes = ((one.kv_cache_bytes_per_token, other.kv_cache_bytes_per_token), (one.parameters, other.parameters))
    if any(mine > theirs for mine, theirs in sizes) or surely_worse(one, other):
        return False
    return surely_worse(other, one) or any(mine < theirs for mine, theirs in sizes)
