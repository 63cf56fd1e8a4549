"""How evidence becomes a finding, and the findings that are equations or counts."""

import json
import math
from pathlib import Path

import pytest

from andrea_bench.claims import algebra, grids, tiles
from andrea_bench.claims.counts import parameter_count
from andrea_bench.claims.finding import STATEMENTS, Evidence, Outcome, claim
from andrea_bench.claims.page import lines, markdown
from andrea_bench.claims.specialisation import head_specialisation, interval, judge
from andrea_bench.errors import BadInput
from andrea_bench.hardware import gpus
from andrea_bench.inspect import Facts
from andrea_bench.inspect.facts import MatrixUse

DESIGN = Path(__file__).parents[2] / "DESIGN.md"


def of(*outcomes: Outcome) -> str:
    evidence = [Evidence(on="x", how="exact", finding=one, text="t") for one in outcomes]
    found = claim("tile-64", evidence, depends_on="size", needs="a GPU")
    assert found.condition == {"depends": "size", "not_testable_here": "a GPU"}.get(found.finding)
    return found.finding


def test_evidence_that_agrees_decides_and_evidence_that_does_not_depends() -> None:
    assert of("holds", "holds", "not_testable_here") == "holds"
    assert of("fails") == "fails"
    assert of("holds", "fails") == of("holds", "depends") == "depends"
    assert of() == of("not_testable_here") == "not_testable_here"


def test_the_statements_are_those_of_the_design() -> None:
    table = DESIGN.read_text(encoding="utf-8").split("| id | statement")[1].split("\n\n")[0]
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:] if line.startswith("|")] == list(STATEMENTS)


@pytest.mark.parametrize("test", [algebra.per_head_equivalence, algebra.concat_inverts_split, algebra.five_steps])
def test_equations_hold(test: object) -> None:
    assert test().finding == "holds"  # type: ignore[operator]


def test_a_wrong_order_of_heads_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "stack", lambda parts, dim: torch.cat([p.unsqueeze(dim) for p in parts[::-1]], dim))
    assert algebra.per_head_equivalence().finding == "fails"


def test_mixing_is_the_output_projections_doing() -> None:
    found = algebra.output_projection_mixes()
    assert found.finding == "holds"
    numbers = {one.on.rpartition(", ")[2]: one.numbers for one in found.evidence}
    assert numbers["no W_O"]["strongest_off_block"] == numbers["block-diagonal W_O"]["strongest_off_block"] == 0
    # The Jacobian's block of chunk i and head j is W_O's block: hand calculation of its weakest norm.
    import torch

    blocks = algebra._normal(32, 32).view(4, 8, 4, 8).pow(2).sum(dim=(1, 3)).sqrt()
    off = blocks[~torch.eye(4, dtype=torch.bool)]
    assert numbers["dense W_O"]["weakest_off_block"] == pytest.approx(float(off.min()))


def test_parameter_count_is_exact() -> None:
    found = parameter_count()
    assert [one.numbers for one in found.evidence[:2]] == [{"attention_per_layer": 2359296}, {"attention": 28311552}]
    assert found.evidence[2].numbers["attention_share"] == pytest.approx(28311552 / 98698752)
    assert found.finding == "holds"


def test_idle_sms_are_counted_by_hand() -> None:
    numbers = {one.on: one.numbers for one in grids.one_kernel_many_heads([]).evidence}
    one = numbers["h200_sxm, batch 1, seq_len 1024, 12 x 64"]
    assert (one["blocks"], one["idle_sms"], one["tiled_blocks"], one["tiled_idle_sms"]) == (12, 120, 96, 36)
    eight = numbers["rtx_4090, batch 8, seq_len 1024, 12 x 64"]
    assert (eight["blocks"], eight["idle_sms"], eight["waves"]) == (96, 32, 0.75)
    assert len(numbers) == 3 * len(gpus())
    assert grids.one_kernel_many_heads([]).finding == "depends"


# ---- tiles ---------------------------------------------------------------------------------------------
def facts(head_dim: int, width: int | None, *, bound_by: str = "tensor", dtype: str = "bfloat16") -> Facts:
    use = [MatrixUse(instruction="mma", m=16, n=8, k=16, in_loop=1, total=1)] if width else []
    return Facts(kernel="triton_exact", gpu="rtx_4090", compute_capability="8.9", bound_by=bound_by, mma=use,
                 problem=tiles.problem(head_dim, dtype), computed_width_qk=width, computed_width_pv=width,
                 global_load_bytes={}, async_copy_bytes={"16": 4}, spill_store_bytes=0)  # fmt: skip


def compiled(*given: Facts) -> dict[str, list[Outcome]]:
    return {
        one.id: [e.finding for e in one.evidence if e.how == "compiled"] for one in tiles.tile_claims(list(given), [])
    }


def test_tiles_are_judged_by_width_and_by_what_binds() -> None:
    found = compiled(
        facts(64, 64), facts(64, 80), facts(64, None, dtype="float32"),
        facts(32, 32), facts(32, 64), facts(32, 32, bound_by="exp"),
        facts(72, 80), facts(72, 72), facts(72, None, dtype="float32"),
    )  # fmt: skip
    assert found["tile-64"] == ["holds", "fails", "fails"]
    assert found["tile-32"] == ["fails", "holds", "holds"]
    assert found["tile-72"] == ["holds", "fails", "fails"]


def test_what_did_not_compile_decides_nothing() -> None:
    refused = Facts(kernel="triton_exact", gpu="v100_pcie", compute_capability="7.0", status="unsupported",
                    reason="bf16 needs sm_80+", problem=tiles.problem(64, "bfloat16"))  # fmt: skip
    assert compiled(refused)["tile-64"] == ["not_testable_here"]


def test_backends_are_asked_by_their_own_rule() -> None:
    by_id = {one.id: {e.on: e for e in one.evidence} for one in tiles.tile_claims([], [])}
    half, single = "bfloat16, float16", "tf32, float32"
    widths = {name: e.numbers.get("width") for name, e in by_id["tile-72"].items()}
    assert widths[f"torch SDPA flash, {half}"] == widths[f"FlashAttention-3, {half}"] == 96
    assert widths[f"torch SDPA cuDNN, {half}"] == 80 and widths[f"FlexAttention, {single}"] == 128
    found = {name: e.finding for name, e in by_id["tile-72"].items()}
    assert found[f"FlashInfer, {half}"] == "holds"  # refused: another backend is needed
    assert found[f"torch SDPA flash, {half}"] == "fails"  # wider, but no fallback
    assert found[f"torch SDPA flash, {single}"] == "not_testable_here"  # refused, but not for its head_dim
    assert found[f"torch SDPA efficient, {single}"] == "fails"
    assert by_id["tile-32"][f"FlashAttention-3, {half}"].finding == "holds"  # it has no kernel of 32
    assert all(e.source for e in by_id["tile-72"].values())


# ---- training ------------------------------------------------------------------------------------------
def training(correlations: list[float], *, accuracy: float = 0.95, grown: float = 0.5) -> dict:
    attention = {"matching bracket": [[0.1, 0.1], [0.1, 0.1]]}
    after = {"matching bracket": [[0.1, 0.1], [0.1, 0.1 + grown]]}
    seeds = [
        {"seed": i, "accuracy": {"matching bracket": accuracy, "most recent name": 0.99}, "correlation": value,
         "attention_untrained": attention, "attention_trained": after}
        for i, value in enumerate(correlations)
    ]  # fmt: skip
    settings = {"n_layer": 2, "n_head": 4, "head_dim": 16, "steps": 10}
    return {"schema_version": 1, "trained_at": "2026-01-01", "settings": settings, "seeds": seeds}


def test_a_correlation_counts_by_its_interval_over_seeds() -> None:
    below = judge(training([-0.5, -0.4, -0.6, -0.5, -0.5]))
    assert [one.finding for one in below] == ["holds", "holds"]
    null = judge(training([-0.5, 0.4, -0.1, 0.2, 0.0], grown=0.05))
    assert [one.finding for one in null] == ["fails", "fails"] and "no difference that is sure" in null[0].text


def test_untaught_tasks_and_few_seeds_say_nothing() -> None:
    for result in (training([-0.5] * 5, accuracy=0.89), training([-0.5, -0.4])):
        assert [one.finding for one in judge(result)] == ["not_testable_here"]


def test_interval_is_students() -> None:
    middle, low, high = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert middle == 3.0 and high - middle == middle - low == pytest.approx(2.776 * math.sqrt(2.5 / 5))


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"schema_version": 1, "seeds": []}'])
def test_a_file_that_is_no_training_is_named(content: str, tmp_path: Path) -> None:
    file = tmp_path / "training.json"
    file.write_text(content)
    with pytest.raises(BadInput, match=r"training\.json: is no training result"):
        head_specialisation(file)
    file.write_text(json.dumps(training([-0.5] * 5) | {"schema_version": 2}))
    with pytest.raises(BadInput, match="schema version 2"):
        head_specialisation(file)
    assert head_specialisation(None).finding == "not_testable_here"


def test_the_page_keeps_its_columns_whatever_the_text() -> None:
    evidence = Evidence(on="a|b\nc", how="exact", finding="holds", text="<b> \\| `x`", source="s|t")
    made = claim("tile-64", [evidence], depends_on="", needs="")
    rows = [line for line in markdown([made], "andrea-bench claims", "a CPU").splitlines() if line.startswith("|")]
    assert all(row.replace("\\\\", "").replace("\\|", "").count("|") == 5 for row in rows)
    assert "<b>" not in markdown([made], "x", "y")
    assert lines([made])[0].startswith("tile-64: holds.")
