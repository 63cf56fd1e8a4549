"""Every number that `explore` and `claims` print stands in their JSON, to the digits that are printed."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from andrea_bench.claims import tiles
from andrea_bench.claims.audit import audit
from andrea_bench.claims.codesign import codesign
from andrea_bench.claims.finding import Claim
from andrea_bench.claims.machine import Machine
from andrea_bench.cli.main import main
from andrea_bench.hardware import find_gpu
from andrea_bench.inspect import Facts
from andrea_bench.inspect.facts import MatrixUse
from andrea_bench.problem import Problem
from andrea_bench.record import Record

NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?:\s?%)?")
TRAINING = Path(__file__).parents[2] / "reports" / "head-specialisation.json"


def printed(text: str) -> Iterator[tuple[float, float]]:
    """(value, half a unit of its last digit) of the numbers in a text; percents as shares."""
    for token in NUMBER.findall(text):
        share = 0.01 if "%" in token else 1.0
        digits = token.rstrip(" %,").replace(",", "")
        mantissa, _, exponent = digits.partition("e")
        unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        if "." not in mantissa and "," not in token and len(mantissa.lstrip("+-")) > 3:
            unit = max(unit, 10.0 ** (len(mantissa.lstrip("+-")) - 3))  # three significant digits
        yield float(digits) * share, unit * share / 2


def numbers(document: Any) -> Iterator[float]:
    """All numbers of a JSON document, those within its texts and keys among them."""
    if isinstance(document, bool) or document is None:
        return
    if isinstance(document, int | float):
        yield float(document)
    elif isinstance(document, str):
        yield from (value for value, _ in printed(document))
    elif isinstance(document, dict):
        for key, value in document.items():
            yield from numbers(key)
            yield from numbers(value)
    else:
        for value in document:
            yield from numbers(value)


def untraced(text: str, known: Iterable[float]) -> list[float]:
    held = list(known)
    return [
        value
        for value, half in printed(text)
        if not any(abs(abs(value) - abs(one)) <= half * (1 + 1e-6) + 1e-12 for one in held)
    ]


def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in names}


def test_the_tracer_misses_nothing_by_itself() -> None:
    assert list(printed("12 x 64 takes 1.22 (1.05 to 1.41), 18% less, 2,359,296")) == [
        (12.0, 0.5), (64.0, 0.5), (1.22, 0.005), (1.05, 0.005), (1.41, 0.005), (0.18, 0.005), (2359296.0, 0.5),
    ]  # fmt: skip
    assert untraced("takes 1.22", numbers({"a": [1.226]})) == [1.22]
    assert untraced("takes 1.22", numbers({"a": {"b": 1.2249}})) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--gpu", "rtx_4090", "--iso", "d_model=768", "-a", "batch=8"],
        ["--gpu", "h200_sxm", "--iso", "d_model=1536", "-a", "seq_len=4096", "-a", "batch=8", "--own", "20x72"],
        ["--gpu", "h200_sxm,rtx_4090", "--iso", "d_model=768", "-a", "n_kv_head=1,4", "--objective", "kv_cache"],
        ["--gpu", "rtx_4090", "--model", "gpt-2-small", "--tp", "2", "--objective", "energy"],
        ["--gpu", "b200", "--iso", "d_model=768", "--kernel", "triton_exact"],
    ],
)
def test_explore_prints_what_its_json_holds(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["explore", *arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(["explore", *arguments]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    for setting in document["settings"]:
        for sentence in setting["sentences"]:
            assert f"- {sentence['text']}" in lines
            ratios = [part for name in ("attention", "layer") if (part := sentence[name])]
            changes = [ratio["value"] - 1 for ratio in ratios]
            known = [*numbers(without(sentence, "text")), *changes, len(sentence["tied"]) - 6]
            assert not untraced(sentence["text"], known), sentence["text"]
    everything = _of_settings(document["settings"])
    for line in lines:
        if line.startswith(("- ", "... and")):
            continue
        assert not untraced(line, everything), line


def _of_settings(settings: list[dict[str, Any]]) -> list[float]:
    """What tables show of the figures, in their units."""
    known = []
    for setting in settings:
        known += [*numbers(without(setting, "sentences", "choices"))]
        for one in setting["choices"]:
            held = list(numbers(one))
            known += [value * scale for value in held for scale in (1, 1e-3, 1e-6, 2.0**-20)]
            for timing in (one["layer"], one["attention"]):
                if timing:
                    known += [100 * (timing[end] / timing["time_us"] - 1) for end in ("low_us", "high_us")]
            if one["layer"]:
                both = one["qkv_projection"]["time_us"] + one["output_projection"]["time_us"]
                known += [both, both / 1e3]
    return known


def test_a_sentence_without_its_number_would_be_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "--gpu", "rtx_4090", "--iso", "d_model=768", "-a", "batch=8", "--json"]) == 0
    sentences = json.loads(capsys.readouterr().out)["settings"][0]["sentences"]
    reasons = [one for one in sentences if one["numbers"]]
    assert reasons and all(untraced(one["text"], numbers(without(one, "text", "numbers"))) for one in reasons)


# ---- claims --------------------------------------------------------------------------------------------
def record(suite: str, op: str, kernel: str, problem: Problem, time_us: float) -> Record:
    return Record(cell_id=f"{kernel}{problem.label()}", suite=suite, op=op, kernel=kernel, problem=problem,
                  device="cuda", status="ok", samples_us=[time_us * f for f in (0.97, 1.0, 1.02) * 7],
                  timing_mode="cuda_event", cache="warm", order=list(range(21)), block=[0] * 21,
                  round=list(range(21)), flops=problem.flops(op), min_bytes=1,
                  started_at="2026-01-01T00:00:00Z")  # fmt: skip


def measured() -> list[Record]:
    """Something for every statement about time."""
    records = []
    for seq_len, factor in ((16, 0.5), (128, 1.0), (1024, 1.3)):
        problem = Problem(seq_len=seq_len, d_model=768, n_head=12, dtype="bfloat16")
        for kernel, scale in (("per_head_loop", 1.0), ("per_head_batched", 0.9), ("fused_each", 0.8)):
            records.append(record("projection", "qkv_projection", kernel, problem, 77.7 * scale))
        records.append(record("projection", "qkv_projection", "fused_qkv", problem, 77.7 * factor))
        for kernel, scale in (("qk_strided", 1.0), ("qk_contiguous", 0.93), ("qk_copy_then_contiguous", 1.17),
                              ("attention_strided", 2.0), ("attention_contiguous", 2.01)):  # fmt: skip
            records.append(record("layout", "layout", kernel, problem, 31.7 * scale))
    for n_head, head_dim, scale in ((12, 64, 1.0), (6, 128, 0.81), (12, 32, 0.77), (12, 72, 1.37)):
        problem = Problem(batch=8, seq_len=1024, n_head=n_head, head_dim=head_dim, dtype="bfloat16")
        for kernel, factor in (("eager", 9.1), ("per_head_loop", 20.3), ("sdpa", 1.0), ("triton_exact", 1.07),
                               ("triton_per_head_block", 1.83)):  # fmt: skip
            records.append(record("attention", "attention", kernel, problem, 211.1 * scale * factor))
    return records


def compiled() -> list[Facts]:
    use = [MatrixUse(instruction="mma", m=16, n=8, k=16, in_loop=1, total=1)]
    return [
        Facts(kernel="triton_exact", gpu="rtx_4090", compute_capability="8.9", bound_by="tensor", mma=use,
              problem=tiles.problem(head_dim, "bfloat16"), computed_width_qk=width, computed_width_pv=width,
              global_load_bytes={"8": 2}, async_copy_bytes={"16": 4}, spill_store_bytes=16)
        for head_dim, width in ((64, 64), (32, 48), (72, 80))
    ]  # fmt: skip


def check(claims: list[Claim]) -> None:
    lost = []
    for one in json.loads(msgspec.json.encode(claims)):
        for evidence in one["evidence"]:
            if missing := untraced(evidence["text"], numbers([evidence["numbers"], evidence["on"]])):
                lost.append((one["id"], evidence["text"], missing))
        if missing := untraced(one["condition"] or "", numbers(one["numbers"])):
            lost.append((one["id"], one["condition"], missing))
    assert not lost


def test_findings_say_what_their_numbers_hold() -> None:
    gpus = [find_gpu("rtx_4090"), find_gpu("h200_sxm")]
    check(audit(measured(), gpus, compiled(), TRAINING, Machine("NVIDIA H200", find_gpu("h200_sxm"))))


def test_the_papers_rules_say_what_their_numbers_hold() -> None:
    check(codesign([find_gpu("rtx_4090"), find_gpu("a100_sxm4_80gb")]))
