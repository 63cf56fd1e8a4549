"""Ranks, ties and the Pareto set, against numbers chosen by hand."""

import pytest

from andrea_bench.explore.choice import Choice, Timing
from andrea_bench.explore.ranking import dominates, rank
from andrea_bench.explore.sentences import sentences
from andrea_bench.problem import Problem


def measured(n_head: int, time_us: float, *, spread: float = 0.02, kv: int = 100, parameters: int = 100) -> Choice:
    problem = Problem(d_model=768, n_head=n_head, dtype="bfloat16")
    timing = Timing(how="measured", time_us=time_us, low_us=time_us * (1 - spread), high_us=time_us * (1 + spread),
                    tflops=1.0, percent_of_bound=None, prediction=None)  # fmt: skip
    return Choice(split=f"{n_head} x {768 // n_head}", problem=problem, attention=timing, layer=timing,
                  kv_cache_bytes_per_token=kv, parameters=parameters, memory_bytes=kv)  # fmt: skip


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_medians_within_the_spread_are_a_tie_and_a_surely_slower_one_is_third(order: tuple[int, ...]) -> None:
    three = [measured(12, 102.0), measured(8, 102.1), measured(6, 109.0)]
    assert rank([three[i] for i in order], "time")
    assert [one.rank for one in three] == [1, 1, 3]


def test_what_cant_be_told_from_the_best_ties_with_it_behind_others_that_can() -> None:
    best, worse, unsure = measured(12, 100.0), measured(8, 110.0), measured(6, 112.0, spread=0.3)
    rank([best, worse, unsure], "time")
    assert (best.rank, worse.rank, unsure.rank) == (1, 2, 1)


def test_equal_times_are_ordered_by_the_split_not_by_chance() -> None:
    a, b, slow = measured(12, 100.0), measured(8, 100.0), measured(6, 200.0)
    assert rank([b, slow, a], "time") and rank([a, b, slow], "time")
    assert (a.rank, b.rank, slow.rank) == (1, 1, 3)


def test_intervals_that_tell_nothing_apart_give_no_ranks_and_say_so() -> None:
    wide = [measured(12, 100.0, spread=0.5), measured(8, 110.0, spread=0.5)]
    assert not rank(wide, "time")
    assert [one.rank for one in wide] == [None, None]
    said = sentences(wide, wide[0], "time", rankable=False)
    assert said[0].text.startswith("not ranked: even 8 x 96 over 12 x 64 is 1.10 (0.37 to 3.30)")
    assert said[0].layer is not None and said[0].layer.value == pytest.approx(1.1)


def test_a_choice_with_a_reason_against_it_never_ranks() -> None:
    fast, slow = measured(12, 1.0), measured(8, 100.0)
    fast.reason = "implausible: above the peak"
    rank([fast, slow], "time")
    assert (fast.rank, slow.rank, slow.pareto, fast.pareto) == (None, 1, True, False)


def test_exact_objectives_tie_only_where_they_are_equal() -> None:
    a, b, c = measured(12, 100.0, kv=10), measured(8, 50.0, kv=10), measured(6, 10.0, kv=11)
    assert rank([c, a, b], "kv_cache")
    assert (a.rank, b.rank, c.rank) == (1, 1, 3)


def test_pareto_set_holds_what_nothing_beats() -> None:
    fast = measured(12, 100.0, kv=100)
    as_fast_smaller = measured(8, 101.0, kv=50)
    slow_small = measured(6, 200.0, kv=25)
    slow_big = measured(4, 200.0, kv=100)
    rank([fast, as_fast_smaller, slow_small, slow_big], "time")
    # `fast` is not surely faster than the second, which needs half the cache.
    assert [one.pareto for one in (fast, as_fast_smaller, slow_small, slow_big)] == [False, True, True, False]
    assert dominates(as_fast_smaller, fast) and not dominates(fast, as_fast_smaller)


def test_sentences_name_the_nearest_better_neighbour_and_why() -> None:
    own, near, far = measured(12, 130.0), measured(8, 115.0), measured(2, 100.0)
    choices = [far, near, own]
    assert rank(choices, "time")
    said = [one.text for one in sentences(choices, own, "time", rankable=True)]
    assert said[0].startswith("12 x 64 takes 1.30 (1.25 to 1.35) of the layer time of the best, 2 x 384, measured")
    assert said[1].startswith(
        "nearest better neighbour: 8 x 96 would take 12% less in attention, 12% less in the layer"
    )
    assert "0.667 times the scores" in said[1]
