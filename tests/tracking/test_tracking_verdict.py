"""compare and gate on asv's results: our verdict, asv's beside it, and the exit code."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from asv_files import COUNTED, TIME, commit, times, write

from andrea_bench.cli.main import main
from andrea_bench.tracking.folder import read_side
from andrea_bench.tracking.results import Point
from andrea_bench.tracking.verdict import asv_verdict, judge_results
from andrea_bench.verdicts import Policy

EAGER = [["'eager'"], ["64"]]


@pytest.fixture(autouse=True)
def _outside_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))


def gate(base: dict[str, list[Any]], head: dict[str, list[Any]], capsys: pytest.CaptureFixture[str], *options: str,
         **head_facts: Any) -> tuple[int, dict[str, Any]]:  # fmt: skip
    """Exit code and document of `gate` on two commits of one folder."""
    write(Path("r"), 1, base)
    write(Path("r"), 2, head, **head_facts)
    code = main(["gate", f"r@{commit(1)[:8]}", f"r@{commit(2)[:8]}", "--json", "--annotations", "none", *options])
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == code
    return code, document


def sampled(level: float, seed: int, count: int = 30) -> list[float]:
    noise = random.Random(seed)
    return [level * (1 + noise.uniform(-0.03, 0.03)) for _ in range(count)]


def row(*levels: float, seed: int = 1) -> list[Any]:
    params = [["'eager'", "'sdpa'", "'flash'", "'math'"][: len(levels)], ["64"]]
    samples = [sampled(level, seed + i) for i, level in enumerate(levels)]
    return times([sorted(s)[len(s) // 2] for s in samples], params, samples=samples)


def test_a_slowdown_is_named_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = gate({TIME: row(1e-3, 2e-3)}, {TIME: row(1.3e-3, 2e-3, seed=9)}, capsys)
    verdicts = {cell["kernel"]: cell["verdict"] for cell in document["cells"]}
    assert code == 1 and verdicts == {"eager, 64": "slower", "sdpa, 64": "same"}
    (slow,) = [cell for cell in document["cells"] if cell["verdict"] == "slower"]
    assert slow["ratio"] == pytest.approx(1.3, abs=0.02) and "asv: 1.3" in slow["reason"]


def test_the_same_code_passes(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = gate({TIME: row(1e-3, 2e-3)}, {TIME: row(1e-3, 2e-3, seed=9)}, capsys)
    assert code == 0 and {cell["verdict"] for cell in document["cells"]} == {"same"}


def test_without_samples_by_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = gate({TIME: times([1e-3], EAGER)}, {TIME: times([1.3e-3], EAGER)}, capsys)
    (cell,) = document["cells"]
    assert code == 1 and cell["verdict"] == "slower"
    # The quotient of the intervals' ends, by hand: 1.3 * 0.99 / 1.01 and 1.3 * 1.01 / 0.99.
    assert (cell["low"], cell["high"]) == (pytest.approx(1.27426, abs=1e-4), pytest.approx(1.32626, abs=1e-4))
    assert any("--record-samples" in text for text in document["warnings"])


def test_a_wide_interval_decides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = gate({TIME: times([1e-3], EAGER, spread=0.2)}, {TIME: times([1.1e-3], EAGER, spread=0.2)}, capsys)
    assert code == 3 and document["verdict"] == "inconclusive"
    assert "not significant" in document["cells"][0]["reason"] or "not changed" in document["cells"][0]["reason"]


@pytest.mark.parametrize("policy", ["report", "fail", "pass"])
@pytest.mark.parametrize("samples", [None, [[0.0] * 9]])
def test_a_time_of_nothing_passes_under_no_policy(
    policy: str, samples: list[list[float]] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    base = {TIME: times([1e-3], EAGER, samples=[[1e-3] * 9])}
    code, document = gate(base, {TIME: times([0.0], EAGER, samples=samples)}, capsys, "--on-inconclusive", policy)
    assert code == 3 and document["cells"][0]["reason"].startswith("invalid: a time of 0")


@pytest.mark.parametrize(("value", "word"), [(None, "failed"), (math.nan, "skipped")])
def test_what_no_longer_runs_is_broken(value: float | None, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = gate({TIME: times([1e-3], EAGER)}, {TIME: times([value], EAGER)}, capsys)
    assert code == 1 and document["verdict"] == "broken" and word in document["cells"][0]["reason"]


def test_a_part_that_b_selected_is_gated_alone_where_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """asv writes NaN for what -b left out, too, and other benchmarks are not in the file at all."""
    params = [["'a'", "'b'"], ["64"]]
    base = {TIME: times([1.0, 1.0], params), COUNTED: [[0], [["'a'"]], "1"]}
    head = {TIME: times([1.0, math.nan], params)}
    code, document = gate(base, head, capsys)
    assert code == 1 and [c["verdict"] for c in document["cells"]].count("broken") == 2
    code, document = gate(base, head, capsys, "--allow-missing")
    assert code == 0 and len(document["cells"]) == 1
    assert [c["kernel"] for c in document["only_base"]] == ["b, 64", "a"]
    # What failed is no missing part.
    assert gate(base, {TIME: times([1.0, None], params)}, capsys, "--allow-missing")[0] == 1


def test_what_runs_anew_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    base = {TIME: times([math.nan, 1.0], [["'a'", "'b'"], ["64"]])}
    code, document = gate(base, {TIME: times([1.0, 1.0], [["'a'", "'b'"], ["64"]])}, capsys)
    assert code == 0 and [c["kernel"] for c in document["only_head"]] == ["a, 64"]


def test_a_renamed_kernel_is_gone_and_new(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = {TIME: times([1.0], [["'old'"], ["64"]])}, {TIME: times([1.0], [["'new'"], ["64"]])}
    code, document = gate(old, new, capsys)
    assert code == 1
    assert [c["kernel"] for c in document["only_base"]] == ["old, 64"]
    assert [c["kernel"] for c in document["only_head"]] == ["new, 64"]
    assert gate(old, new | {"a.track_ratio": [[1.0], [], "1"]}, capsys, "--allow-missing")[0] in (0, 3)


def test_another_version_is_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = gate({TIME: times([1.0], EAGER)}, {TIME: times([9.0], EAGER, version="2")}, capsys)
    assert code == 3 and document["cells"][0]["verdict"] == "not_comparable"


@pytest.mark.parametrize(
    ("base", "head", "verdict"), [(0, 8, "slower"), (8, 0, "faster"), (8, 8, "same"), (168, 169, "slower")]
)
def test_compiled_code_has_no_allowance(base: int, head: int, verdict: str, capsys: pytest.CaptureFixture[str]) -> None:
    params = [["'triton_exact'"]]
    _, document = gate({COUNTED: [[base], params, "1"]}, {COUNTED: [[head], params, "1"]}, capsys)
    assert document["cells"][0]["verdict"] == verdict and f"{base} -> {head} bytes" in document["cells"][0]["reason"]


def test_a_tracked_value_without_interval(capsys: pytest.CaptureFixture[str]) -> None:
    within = gate({"a.track_ratio": [[1.0], [], "1"]}, {"a.track_ratio": [[1.04], [], "1"]}, capsys)
    beyond = gate({"a.track_ratio": [[1.0], [], "1"]}, {"a.track_ratio": [[1.3], [], "1"]}, capsys)
    assert (within[0], beyond[0]) == (0, 3)


def test_more_may_be_better(capsys: pytest.CaptureFixture[str]) -> None:
    """A rate that rose is no regression (asv itself takes it for one)."""
    _, document = gate({"a.track_score": [[100.0], [], "1"]}, {"a.track_score": [[120.0], [], "1"]}, capsys)
    assert "better" in document["cells"][0]["reason"]
    _, document = gate({"a.track_score": [[120.0], [], "1"]}, {"a.track_score": [[100.0], [], "1"]}, capsys)
    assert "worse" in document["cells"][0]["reason"]


def test_another_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = gate({TIME: row(1e-3)}, {TIME: row(1e-3, seed=9)}, capsys, facts={"cpu": "Xeon"})
    assert code == 3 and document["differences"][0]["text"] == "cpu: EPYC -> Xeon"


def test_another_torch_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    _, document = gate({TIME: row(1e-3)}, {TIME: row(1e-3, seed=9)}, capsys, facts={"torch": "2.14.0"})
    assert "torch: 2.13.0 -> 2.14.0" in document["warnings"]


def test_wrong_usage_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(Path("r"), 1, {TIME: row(1e-3)})
    (tmp_path / "run").mkdir()
    for arguments, said in (
        (["r@00000001", "r@00000001"], "both base and head"),
        (["r@00000001", "run"], "compare two of a kind"),
        (["r@00000002", "r@00000001"], "no git repository"),
        (["none@00000001", "r@00000001"], "no baseline"),
    ):
        assert main(["gate", *arguments]) == 2
        assert said in capsys.readouterr().err


def test_compare_shows_a_table_and_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    write(Path("r"), 1, {TIME: row(1e-3)})
    write(Path("r"), 2, {TIME: row(1.5e-3, seed=9)})
    assert main(["compare", "r@00000001", "r@00000002"]) == 0
    assert "output.Output.time_call eager, 64" in capsys.readouterr().out


def point(value: float, samples: list[float]) -> Point:
    """As asv stores it: the median and its interval by asv's own statistics."""
    from asv_runner.statistics import compute_stats

    median, stats = compute_stats(samples, 1)
    assert median == pytest.approx(value, rel=0.05)
    return Point("a.time_it", (), "time", "seconds", "1", "ok", median, stats["ci_99_a"], stats["ci_99_b"],
                 tuple(samples), 1, len(samples))  # fmt: skip


@pytest.mark.parametrize("factor", [1.0, 1.05, 1.2, 1.5, 0.6])
@pytest.mark.parametrize("count", [5, 10, 30])
def test_asvs_own_rule(factor: float, count: int) -> None:
    """asv.statistics.is_different is the truth for what asv calls significant."""
    from asv._stats import is_different
    from asv_runner.statistics import compute_stats

    a, b = sampled(1e-3, 3, count), sampled(1e-3 * factor, 4, count)
    said = asv_verdict(point(1e-3, a), point(1e-3 * factor, b))
    significant = is_different(a, b, compute_stats(a, 1)[1], compute_stats(b, 1)[1])
    if 1 / 1.1 <= factor <= 1.1:
        assert "not changed" in said
    else:
        assert ("not significant" not in said) == significant


def test_false_alarms_of_the_same_code(tmp_path: Path) -> None:
    """Of 40 gates of 4 cells of equal code, with 5 % noise from call to call, none may fail at 5 %."""
    policy = Policy(max_slowdown=0.05)
    for seed in range(0, 400, 10):
        write(tmp_path, 1, {TIME: row(1e-3, 1e-3, 1e-3, 1e-3, seed=seed)})
        write(tmp_path, 2, {TIME: row(1e-3, 1e-3, 1e-3, 1e-3, seed=seed + 5)})
        base, head = (read_side(tmp_path / f"node/{commit(n)[:8]}-venv-py3.11.json") for n in (1, 2))
        assert judge_results(base, head, policy).exit_code == 0
