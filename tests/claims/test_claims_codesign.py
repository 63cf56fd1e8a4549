"""The rules of arXiv 2401.14489: published figures by hand, predictions by the model's own numbers."""

import json
import weakref
from functools import partial

import pytest

from andrea_bench.claims.codesign import RULES, codesign
from andrea_bench.claims.sweeps import Sizes, Sweeps, Trial, _compared, _doubted, in_turn, measure_rules
from andrea_bench.cli.main import main
from andrea_bench.hardware import find_gpu
from andrea_bench.predict import matmul


def test_published_figures_are_the_papers_own() -> None:
    found = {one.id: {e.on: e for e in one.evidence} for one in codesign([])}
    assert list(found) == list(RULES)
    vocabulary = found["vocabulary"]["a100, vocabulary 51136 to 51264"]
    assert "3.44 of the rate of odd sizes and 1.13" in vocabulary.text and vocabulary.finding == "holds"  # 255.6 / 74.2
    # Flash: 217 / 203 is no cliff beyond multiples of 8, though 217 / 182 is a gain over odd ones.
    assert found["head-dim"]["a100, flash attention, head_dim 64 to 127"].finding == "depends"
    assert found["head-dim"]["a100, unfused Q K^T, head_dim 64 to 127"].finding == "holds"


def test_predictions_compare_the_same_work() -> None:
    gpu = find_gpu("a100_sxm4_40gb")
    (rule,) = [one for one in codesign([gpu]) if one.id == "vocabulary"]
    odd = next(e for e in rule.evidence if e.on.endswith("51200 over 51199"))
    times = {n: matmul(gpu, m=8192, n=n, k=14336, dtype="bfloat16").time_us for n in (51199, 51200)}
    assert odd.numbers["ratio"] == pytest.approx(times[51200] / 51200 * 51199 / times[51199])
    assert odd.finding == "holds" and rule.finding == "depends"


def test_what_the_model_cannot_tell_decides_nothing() -> None:
    for rule in codesign([find_gpu("h200_sxm"), find_gpu("v100_pcie")]):
        for e in rule.evidence:
            if e.how != "predicted" or "ratio" not in e.numbers:
                continue
            value, low, high = (e.numbers[name] for name in ("ratio", "low", "high"))
            expected = "holds" if high < 1 else "fails" if low > 1 or abs(value - 1) < 0.05 else "not_testable_here"
            assert e.finding == expected


def test_heads_that_do_not_divide_cannot_be_split() -> None:
    (rule,) = [one for one in codesign([]) if one.id == "heads-divide"]
    assert rule.finding == "holds" and "n_head 12 is not divisible" in rule.evidence[0].text


def test_every_sweep_is_measured_and_holds_its_samples() -> None:
    pytest.importorskip("torch", reason="sweeps are measured with torch")
    tiny = Sizes(vocabulary=(4, 8, 64), low=(4, 8, 64), rows=(2, 4), rows_k=8, attention=(1, 2, 8), layer=(16, 2, 4),
                 batches=(1, 2), parallel=(1, 64, 8, 4), swiglu=(4, 8, 21, (24, 32)), width=128)  # fmt: skip
    found = measure_rules("cpu", "a CPU", samples=6, sizes=tiny)
    # Of the rules, the one about whole numbers needs no measurement.
    assert set(found) == set(RULES) - {"heads-divide"}
    everything = [e for rule in found.values() for e in rule]
    assert len(everything) == 2 + 3 + 3 * 3 + 1 + 1 + 3 + 2 + 4
    for e in everything:
        assert len(e.numbers["samples_us"]) == 2 and all(len(s) == 6 for s in e.numbers["samples_us"].values())
        assert e.numbers["low"] <= e.numbers["ratio"] <= e.numbers["high"]
    assert found["vocabulary"][0].on == "a CPU, 4 x 8 x 64 over 4 x 8 x 63"
    rules = {one.id: one for one in codesign([], found)}
    assert all(e in rules["swiglu"].evidence for e in found["swiglu"])


def test_a_sweep_that_can_t_run_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="sweeps are measured with torch")

    def refused(self: Sweeps) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 4 GiB\nmore")

    monkeypatch.setattr(Sweeps, "_swiglu", refused)
    monkeypatch.setattr(Sweeps, "by_rule", lambda self: iter([("swiglu", self._swiglu), ("micro-batch", self._rows)]))
    found = measure_rules("cpu", "a CPU", samples=6)
    assert found["swiglu"][0].text == "a sweep of the paper could not run: CUDA out of memory. Tried to allocate 4 GiB"
    assert found["swiglu"][0].finding == "not_testable_here" and len(found["micro-batch"]) == 3


def test_one_sweep_is_gone_before_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="sweeps are measured with torch")
    made: list[weakref.ref[Trial]] = []

    def make() -> tuple[dict[str, Trial], list[tuple[str, str]]]:
        assert all(one() is None for one in made)
        trials = {name: Trial(lambda: None, 1) for name in ("better", "worse")}
        made.extend(map(weakref.ref, trials.values()))
        return trials, [("better", "worse")]

    monkeypatch.setattr(Sweeps, "by_rule", lambda self: iter([("swiglu", make)] * 3))
    assert len(measure_rules("cpu", "a CPU", samples=6)["swiglu"]) == 3


def test_trials_take_turns_in_a_shuffled_order() -> None:
    pytest.importorskip("torch", reason="sweeps are measured with torch")
    called: list[str] = []
    in_turn({name: Trial(partial(called.append, name), 1) for name in "abc"}, "cpu", 20)
    turns = {tuple(called[i : i + 3]) for i in range(0, len(called), 3)}
    assert len(turns) > 2 and all(set(turn) == set("abc") for turn in turns)


def test_times_are_compared_for_the_same_work() -> None:
    trials = {"better": Trial(lambda: None, 64), "worse": Trial(lambda: None, 32)}
    times = {"better": [100.0, 101.0, 99.0] * 5, "worse": [100.0, 101.0, 99.0] * 5}
    found = _compared("a CPU", "better", "worse", trials, times)
    assert found.numbers["ratio"] == pytest.approx(0.5) and found.finding == "holds"


def test_what_was_measured_beside_other_work_decides_nothing() -> None:
    trials = {"better": Trial(lambda: None, 1), "worse": Trial(lambda: None, 1)}
    sure = _compared("a CPU", "better", "worse", trials, {"better": [50.0] * 15, "worse": [100.0] * 15})
    assert sure.finding == "holds" and _doubted(sure, []) == sure
    doubted = _doubted(sure, ["others used 1.75 of 2 CPUs"])
    assert doubted.finding == "not_testable_here" and "doubtful: others used 1.75 of 2 CPUs" in doubted.text


def test_shares_of_a_layer_add_up_to_it() -> None:
    pytest.importorskip("torch", reason="sweeps are measured with torch")
    trials, pairs = Sweeps("cpu")._parallel()
    assert [trial.work for trial in trials.values()] == [1, 1 / 2, 1 / 4, 1 / 8]
    assert all(one.endswith("share of 1") for one, _ in pairs)
    whole, half = (next(t for name, t in trials.items() if name.endswith(f"share of {n}")) for n in (1, 2))
    assert whole.call().shape == half.call().shape == (1, 128, 512)


def test_the_verb_prints_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "--paper", "2401.14489", "--gpu", "rtx_4090", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in document["rules"]] == list(RULES)
    assert main(["explore", "--paper", "2401.0", "--gpu", "rtx_4090"]) == 2
    assert "known: 2401.14489" in capsys.readouterr().err
