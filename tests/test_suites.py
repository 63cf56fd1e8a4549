"""Suites: what they set side by side exists, and their groups, defaults and answers are what they say."""

import dataclasses
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from andrea_bench.errors import BadInput
from andrea_bench.kernel import find_kernel, kernels
from andrea_bench.problem import Problem
from andrea_bench.suite import Suite, find_suite, suites
from andrea_bench.suites.alignment import STEPS, neighbours, width_neighbours

NAMES = {"projection", "attention", "decode", "alignment", "layout", "output", "layer"}
EACH = pytest.mark.parametrize("suite", suites().values(), ids=lambda suite: suite.name)


def test_every_question_has_its_suite() -> None:
    assert set(suites()) == NAMES
    with pytest.raises(BadInput, match="closest: attention"):
        find_suite("atention")


@EACH
def test_members_are_kernels_and_answers_name_members(suite: Suite) -> None:
    names = [name for _, name in suite.members]
    assert suite.question.endswith("?")
    assert suite.baseline in names
    assert max(Counter(names).values()) == 1, "an answer could not tell two members of one name apart"
    for op, name in suite.members:
        assert find_kernel(op, name).op == op
    for answer in suite.answers:
        assert {answer.kernel, answer.against} <= set(names)
        fields = msgspec.structs.asdict(Problem(n_head=6, n_kv_head=2, head_dim=72))
        text = answer.text.format(ratio="0.62 (0.60 to 0.64)", percent="62 %", **fields)
        assert "0.62 (0.60 to 0.64)" in text
        assert "{" not in text
        assert not text.endswith(".")
        assert "\n" not in text


def test_every_kernel_is_in_some_suite() -> None:
    asked = {member for suite in suites().values() for member in suite.members}
    # Other tests of this process may have registered kernels of their own.
    idle = {(k.op, k.name) for k in kernels() if k.file.parent.name == "andrea_kernels"} - asked
    assert idle == set()


# What the Triton kernels are written for; the alignment suite needs what is exact and what is padded side by side.
TRITON: dict[str, set[str]] = {
    "projection": {"triton_fused_qkv", "triton_per_head_projection"},
    "attention": {"triton_exact", "triton_padded", "triton_scalar_loads", "triton_per_head_block"},
    "decode": {"triton_decode"},
    "alignment": {"triton_exact", "triton_padded"},
    "layout": set(),
    "output": {"triton_output_projection"},
    "layer": {"triton_fused_qkv", "triton_exact", "triton_output_projection", "triton_three_launches"},
}


@EACH
def test_triton_s_kernels_stand_beside_torch_s(suite: Suite) -> None:
    members = {name for _, name in suite.members if name.startswith("triton_")}
    assert members == TRITON[suite.name]


def test_suites_do_not_import_torch() -> None:
    code = (
        "import sys; from andrea_bench.suite import suites; suites(); "
        "print(*sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found.split() == []


def test_only_alignment_makes_more_than_one_group() -> None:
    problem = Problem(n_head=12, head_dim=64)
    for suite in suites().values():
        made = suite.groups(suite, problem)
        if suite.name != "alignment":
            assert made == [(problem, suite.members)]


# ---- alignment ------------------------------------------------------------------------------------------
def test_neighbours_keep_all_but_head_dim() -> None:
    problem = Problem(batch=3, seq_len=100, kv_len=200, n_head=12, n_kv_head=4, head_dim=64, dtype="bfloat16")
    near = neighbours(problem)
    assert [p.head_dim for p in near] == [56, 63, 64, 65, 72]
    assert {p.replace(head_dim=64) for p in near} == {problem}
    assert near[2] == problem


def test_projection_width_is_that_of_one_head() -> None:
    problem = Problem(batch=3, seq_len=100, d_model=768, n_head=12, n_kv_head=4, head_dim=64, causal=False)
    near = width_neighbours(problem)
    assert [p.head_dim for p in near] == [760, 767, 768, 769, 776]
    assert {(p.n_head, p.n_kv_head, p.d_model, p.batch, p.seq_len) for p in near} == {(1, 1, 768, 3, 100)}
    # As much work as the Problem's own projection of Q, three times over.
    assert near[2].flops("qkv_projection") == 3 * 2 * 300 * 768 * 768
    # Masks mean nothing to a projection: both are one Problem, measured once.
    assert width_neighbours(problem.replace(causal=True)) == near


@pytest.mark.parametrize(
    ("head_dim", "legal"), [(1, [1, 2, 9]), (2, [1, 2, 3, 10]), (8, [7, 8, 9, 16]), (9, [1, 8, 9, 10, 17])]
)
def test_neighbours_below_one_are_left_out(head_dim: int, legal: list[int]) -> None:
    assert [p.head_dim for p in neighbours(Problem(n_head=1, head_dim=head_dim))] == legal


def test_alignment_runs_attention_and_projections_on_their_own_neighbours() -> None:
    suite = find_suite("alignment")
    problem = Problem(n_head=12, head_dim=64)
    made = suite.groups(suite, problem)
    assert len(made) == 2 * len(STEPS)
    ops = [{op for op, _ in members} for _, members in made]
    assert ops == [{"attention"}] * len(STEPS) + [{"qkv_projection"}] * len(STEPS)
    assert {member for _, members in made for member in members} == set(suite.members)


def test_alignment_runs_what_a_narrowed_suite_holds_alone() -> None:
    narrowed = dataclasses.replace(find_suite("alignment"), members=(("attention", "sdpa"),))
    made = narrowed.groups(narrowed, Problem(n_head=2, head_dim=16))
    assert {members for _, members in made if members} == {(("attention", "sdpa"),)}


# ---- the other suites' own ------------------------------------------------------------------------------
def test_decode_asks_for_one_query_and_a_long_cache() -> None:
    assert find_suite("decode").defaults == {"direction": ["decode"], "seq_len": [1], "kv_len": [1024, 4096]}


def test_the_stages_of_a_whole_layer_do_its_work() -> None:
    suite = find_suite("layer")
    assert [kernel for kernel, _ in suite.wholes] == ["five_steps", "triton_three_launches"]
    problem = Problem(n_head=12, head_dim=64)
    for _, stages in suite.wholes:
        assert set(stages) < set(suite.members)
        parts = [find_kernel(op, name).part for op, name in stages]
        flops = sum(problem.flops(op, part) for (op, _), part in zip(stages, parts, strict=True))
        assert flops == problem.flops("layer")


def test_layout_sets_the_same_work_side_by_side() -> None:
    problem = Problem(n_head=12, head_dim=64)
    flops: dict[str | None, set[int]] = {}
    for op, name in find_suite("layout").members:
        part = find_kernel(op, name).part
        flops.setdefault(part, set()).add(problem.flops(op, part))
    assert {part: len(counts) for part, counts in flops.items()} == {"qk": 1, "attention": 1, "copy": 1}
    assert flops["copy"] == {0}
