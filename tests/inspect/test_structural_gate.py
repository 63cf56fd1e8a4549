"""The structural gate: kernels made worse on purpose are named with their cause; each rule, both ways."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("triton", reason="the package triton is not installed")

from sample_launch import EXACT, PADDED, TYPES

from andrea_bench import Problem
from andrea_bench.cli.main import main
from andrea_bench.errors import BadInput
from andrea_bench.inspect import gate, summary, survey
from andrea_bench.inspect.cache import AnalysisCache
from andrea_bench.inspect.document import FactsDocument, read_facts, write_facts
from andrea_bench.inspect.facts import Facts, MatrixUse
from andrea_bench.inspect.pipeline import Options
from andrea_bench.kernel import find_kernel

MODULE = f"{Path(__file__).parent / 'sample_kernels.py'}:sample_attention"
COMPILERS = {"triton": "3.7.1", "ptxas": "12.8.93", "torch": "2.13.0"}


def sample_arguments(num_warps: int = 4, **changes: Any) -> list[str]:
    constants = ",".join(f"{name}={value}" for name, value in {**EXACT, **changes}.items())
    return ["inspect", "--gpu", "rtx_4090", "--module", MODULE, "--signature", TYPES.replace("*bf16", "*bf16:16"),
            "--constexpr", constants, "--num-warps", str(num_warps), "--num-stages", "2"]  # fmt: skip


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("baseline") / "facts.json"
    assert main([*sample_arguments(), "--save", str(path), "--json"]) == 0
    return path


def check(baseline: Path, capsys: pytest.CaptureFixture[str], **changes: Any) -> dict[str, Any]:
    code = main([*sample_arguments(**changes), "--check", str(baseline), "--json"])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert result["exit_code"] == code
    return result


def worse(result: dict[str, Any]) -> dict[str, str]:
    return {f["field"]: f["reason"] for f in result["findings"] if f["severity"] == "worse"}


def test_unchanged_kernel_is_the_same(baseline: Path, capsys: pytest.CaptureFixture[str]):
    result = check(baseline, capsys)
    assert (result["verdict"], result["exit_code"], result["findings"]) == ("same", 0, [])


def test_padding_72_to_128_is_named(baseline: Path, capsys: pytest.CaptureFixture[str]):
    result = check(baseline, capsys, **PADDED)
    assert (result["verdict"], result["exit_code"]) == ("worse", 1)
    assert "Q K^T computed 80 wide became 128" in worse(result)["issued_mma_flops"]
    assert "P V computed 80 wide became 128" in worse(result)["issued_mma_flops"]


def test_one_warp_is_named(baseline: Path, capsys: pytest.CaptureFixture[str]):
    result = check(baseline, capsys, num_warps=1)
    assert result["exit_code"] == 1
    assert "spilled" in worse(result)["spill_store_bytes"]
    assert "255 registers, 32 threads" in worse(result)["spill_store_bytes"]
    assert "32 threads, was 128" in worse(result)["occupancy"]


def test_dropped_alignment_hint_is_named(baseline: Path, capsys: pytest.CaptureFixture[str]):
    result = check(baseline, capsys, hint=False)
    assert result["exit_code"] == 1
    reason = worse(result)["global_load_bytes"]
    assert reason.startswith("100 % of the loaded bytes come at most 2 at a time, was 0 % (2-byte loads, was ")


def test_for_people_and_for_ci(
    baseline: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    command = [*sample_arguments(hint=False), "--check", str(baseline), "--markdown", str(tmp_path / "comment.md")]
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert main(command) == 1
    plain = capsys.readouterr().out.splitlines()
    assert any(line.startswith("error: sample_attention on rtx_4090: global_load_bytes: 100 % of") for line in plain)
    assert plain[-1].startswith("verdict: worse")
    comment = (tmp_path / "comment.md").read_text()
    assert "| worse | sample\\_attention on rtx\\_4090 | global\\_load\\_bytes |" in comment
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert main(command) == 1
    lines = capsys.readouterr().out.splitlines()
    assert (
        "::error title=andrea-bench inspect worse::sample_attention on rtx_4090: global_load_bytes: 100 %25 of"
        in "\n".join(lines)
    )


@pytest.mark.parametrize(("stands_in", "gpu", "field", "cause"), [
    ("triton_padded", "rtx_4090", "issued_mma_flops", "Q K^T computed 80 wide became 128"),
    ("triton_scalar_loads", "rtx_4090", "async_copy_bytes|global_load_bytes", "come at most 2 at a time"),
    ("triton_scalar_loads", "h200_sxm", "tma_copies", "2-byte loads, was 4 TMA copies"),
    ("num_warps 1", "rtx_4090", "spill_store_bytes|occupancy", "32 threads"),
])  # fmt: skip
def test_project_kernel_made_worse(stands_in: str, gpu: str, field: str, cause: str):
    """triton_exact with another kernel's launches, or with one warp."""
    exact = find_kernel("attention", "triton_exact")
    assert exact.launches is not None
    if stands_in == "num_warps 1":
        changed = replace(exact, launches=lambda p, cc: [replace(one, num_warps=1) for one in exact.launches(p, cc)])
    else:
        changed = replace(exact, launches=find_kernel("attention", stands_in).launches)
    # One warp with a wide tile takes the assembler long.
    head_dim = 32 if stands_in == "num_warps 1" else 72
    problem = Problem(d_model=768, n_head=12, head_dim=head_dim, dtype="bfloat16")
    options = Options(cache=AnalysisCache())
    base, head = (
        FactsDocument(compilers=COMPILERS, facts=survey([one], [problem], [gpu], options)) for one in (exact, changed)
    )
    result = gate.compare(base, head)
    assert result.exit_code == 1
    named = [f for f in result.findings if f.severity == "worse" and f.field in field.split("|")]
    assert any(cause in f.reason for f in named), result.findings


# ---- each rule, on Facts written by hand -----------------------------------------------------------------
HMMA = MatrixUse(instruction="HMMA.16816.F32", m=16, n=8, k=16, in_loop=64, total=64)
HGMMA = MatrixUse(instruction="HGMMA.64x64x16.F32", m=64, n=64, k=16, in_loop=8, total=8)
NARROW = MatrixUse(instruction="HGMMA.64x16x16.F32", m=64, n=16, k=16, in_loop=32, total=32)


def facts(**changes: Any) -> Facts:
    given: dict[str, Any] = {
        "kernel": "k", "gpu": "h200_sxm", "compute_capability": "9.0", "registers_per_thread": 128, "mma": [HGMMA],
        "spill_store_bytes": 0, "spill_load_bytes": 0, "stack_bytes": 0, "shared_memory_bytes": 1024,
        "threads_per_block": 128, "blocks_per_sm": 4, "warps_per_sm": 16, "occupancy": 0.25,
        "issued_mma_flops": 1000.0, "useful_mma_flops": 900.0, "mma_efficiency": 0.9, "global_load_bytes": {},
        "async_copy_bytes": {"16": 8}, "loop_instructions": 100, "kernel_instructions": 500, "tma_copies": 0,
        "unit_cycles": {"tensor": 100.0}, "blocks": 10,
    }  # fmt: skip
    given |= {"code_hash": str(changes), "occupancy_limiter": "registers"}
    return Facts(**{**given, **changes})


def compare(before: list[Facts], after: list[Facts], compilers: dict[str, str] = COMPILERS) -> gate.GateResult:
    return gate.compare(
        FactsDocument(compilers=COMPILERS, facts=before), FactsDocument(compilers=compilers, facts=after)
    )


RULES: list[tuple[dict[str, Any], str]] = [
    ({"spill_store_bytes": 8}, "spill_store_bytes"),
    ({"spill_load_bytes": 4}, "spill_load_bytes"),
    ({"occupancy": 0.125, "warps_per_sm": 8, "registers_per_thread": 255}, "occupancy"),
    ({"mma": [HMMA]}, "mma"),
    ({"mma": []}, "mma"),
    ({"mma": [NARROW]}, "mma"),
    ({"mma": [msgspec.structs.replace(HGMMA, k=8)], "unit_cycles": {"tensor": 200.0}}, "mma"),
    ({"issued_mma_flops": 1600.0, "mma_efficiency": 0.5625}, "issued_mma_flops"),
    ({"issued_mma_flops": None, "mma_efficiency": None}, "issued_mma_flops"),
    ({"async_copy_bytes": {"4": 32}}, "async_copy_bytes"),
    ({"async_copy_bytes": {}, "global_load_bytes": {"2": 64}}, "global_load_bytes"),
    ({"status": "timeout", "reason": "too long"}, "status"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "field"), RULES)
def test_each_rule_both_ways(change: dict[str, Any], field: str):
    result = compare([facts()], [facts(**change)])
    assert result.exit_code == 1
    assert [f.field for f in result.findings if f.severity == "worse"] == [field]
    assert result.verdict == ("broken" if field == "status" else "worse")
    back = compare([facts(**change)], [facts()])
    assert (back.exit_code, back.verdict) == (0, "better")
    assert [f.field for f in back.findings if f.severity == "better"] == [field]


def test_larger_tile_of_a_kernel_that_states_no_useful_flops():
    unstated = {"useful_mma_flops": None, "mma_efficiency": None, "computed_width_qk": 80, "computed_width_pv": 80}
    twice = facts(**unstated, issued_mma_flops=2000.0)
    assert compare([facts(**unstated)], [twice]).exit_code == 0
    wider = facts(**{**unstated, "computed_width_qk": 128})
    assert compare([facts(**unstated)], [wider]).exit_code == 1
    (found,) = compare([facts(**unstated)], [twice]).findings
    assert (found.severity, found.field) == ("note", "issued_mma_flops")


UNSTATED: dict[str, Any] = {"useful_mma_flops": None, "mma_efficiency": None}
LARGER_TILE: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    # As many blocks that load as much: the same work.
    ({}, {}, "worse"),
    ({}, {"threads_per_block": 256, "async_copy_bytes": {"16": 4}}, "worse"),
    # A pass that loads twice as much, as with BLOCK_K doubled; half as many blocks, as with BLOCK_M doubled.
    ({}, {"async_copy_bytes": {"16": 16}}, "note"),
    ({}, {"blocks": 5}, "note"),
    # Nothing known of what a pass covers: without --grid, by TMA, without loads.
    ({"blocks": None}, {}, "note"),
    ({"tma_copies": 2}, {}, "note"),
    ({"async_copy_bytes": {}}, {}, "note"),
    ({"global_load_bytes": None}, {}, "note"),
]


@pytest.mark.parametrize(("both", "change", "severity"), LARGER_TILE)
def test_more_flops_in_a_pass_count_where_its_work_is_known_to_be_the_same(
    both: dict[str, Any], change: dict[str, Any], severity: str
):
    base, head = facts(**UNSTATED, **both), facts(**{**UNSTATED, **both, **change, "issued_mma_flops": 2000.0})
    for before, after, expected in ((base, head, severity), (head, base, severity.replace("worse", "better"))):
        found = [f for f in compare([before], [after]).findings if f.field == "issued_mma_flops"]
        assert [f.severity for f in found] == [expected]
    assert compare([base], [head]).exit_code == (severity == "worse")


def test_the_waste_decides_where_useful_flops_are_known():
    larger = facts(issued_mma_flops=2000.0, useful_mma_flops=1800.0)
    assert [f for f in compare([facts()], [larger]).findings if f.field == "issued_mma_flops"] == []
    # A smaller tile that issues less in a pass, and wastes more.
    (found,) = compare([facts()], [facts(issued_mma_flops=800.0, useful_mma_flops=400.0, mma_efficiency=0.5)]).findings
    assert (found.severity, found.reason) == ("worse", "1.111 -> 2.000 matrix FLOPs issued for each useful one")


def test_base_and_head_stand_in_what_people_read():
    def said(**change: Any) -> str:
        result = compare([facts(**UNSTATED)], [facts(**{**UNSTATED, **change})])
        (line,) = summary.annotations(result, for_github=False)
        assert line.split(": ", 3)[-1] == summary.findings_table(result).rows[0][-1]
        return line

    assert "1000 -> 2000 matrix FLOPs issued in one pass of the loop" in said(issued_mma_flops=2000.0)
    assert "can't be read now, was 1000" in said(issued_mma_flops=None)
    assert "(HGMMA.64x64x16.F32 64x64x16 -> HMMA.16816.F32 16x8x16)" in said(mma=[HMMA])
    slow = said(mma=[msgspec.structs.replace(HGMMA, k=8)], unit_cycles={"tensor": 200.0})
    assert "2.00 times the tensor-core cycles for each FLOP (HGMMA.64x64x16.F32 64x64x16 -> " in slow
    assert "timeout now, was ok: too long" in said(status="timeout", reason="too long")


TMA: dict[str, Any] = {"tma_copies": 4, "async_copy_bytes": {}}
# Base, head, the field named, and what is said of it.
NARROWER_LOADS: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    (TMA, {}, "tma_copies", "16-byte loads, was 4 TMA copies"),
    # The part beside the power of two by loads, as of 72 on an H200; with as many TMA copies, too.
    (TMA, {**TMA, "tma_copies": 2, "global_load_bytes": {"2": 16}}, "tma_copies",
     "2 TMA copies and 2-byte loads, was 4 TMA copies"),
    (TMA, {**TMA, "global_load_bytes": {"2": 1}}, "global_load_bytes", "4 TMA copies and 2-byte loads"),
    ({**TMA, "async_copy_bytes": {"4": 2}}, {"tma_copies": 2, "async_copy_bytes": {"4": 2, "16": 4}}, "tma_copies",
     "2 TMA copies and 4-byte and 16-byte loads, was 4 TMA copies and 4-byte loads"),
    # A narrow part beside a wide one: 136 (128 and 16 columns), 104 (96 and 16), 200 (192 and 16).
    ({"async_copy_bytes": {"8": 4, "16": 16}}, {"async_copy_bytes": {"16": 16}, "global_load_bytes": {"2": 16}},
     "global_load_bytes", "11 % of the loaded bytes come at most 2 at a time, was 0 %"),
    ({"async_copy_bytes": {"8": 4, "16": 12}}, {"async_copy_bytes": {"4": 8, "16": 12}},
     "async_copy_bytes", "14 % of the loaded bytes come at most 4 at a time, was 0 %"),
    ({"async_copy_bytes": {"8": 2, "16": 12}}, {"async_copy_bytes": {"4": 4, "16": 12}},
     "async_copy_bytes", "8 % of the loaded bytes come at most 4 at a time, was 0 %"),
    # The wide part, beside a narrow one that stays.
    ({"async_copy_bytes": {"4": 4, "16": 16}}, {"async_copy_bytes": {"4": 4, "8": 32}},
     "async_copy_bytes", "100 % of the loaded bytes come at most 8 at a time, was 6 %"),
]  # fmt: skip


@pytest.mark.parametrize(("base", "head", "field", "reason"), NARROWER_LOADS)
def test_narrower_loads_both_ways(base: dict[str, Any], head: dict[str, Any], field: str, reason: str):
    result = compare([facts(**base)], [facts(**head)])
    assert result.exit_code == 1
    ((named, said),) = [(f.field, f.reason) for f in result.findings if f.severity == "worse"]
    assert named == field
    assert said.startswith(reason)
    back = compare([facts(**head)], [facts(**base)])
    assert (back.exit_code, back.verdict) == (0, "better")
    assert [f.field for f in back.findings if f.severity == "better"] == [field]


def test_tma_copies_that_leave_some_loads():
    """Loads that stay as they were don't count against the copies that took over the others; new narrow ones do."""
    wide = facts(async_copy_bytes={"4": 2, "16": 20})
    result = compare([wide], [facts(tma_copies=4, async_copy_bytes={"4": 2})])
    assert (result.exit_code, result.verdict) == (0, "better")
    result = compare([wide], [facts(tma_copies=4, async_copy_bytes={}, global_load_bytes={"2": 20})])
    assert [f.field for f in result.findings if f.severity == "worse"] == ["global_load_bytes"]


def test_loop_that_reads_nothing_any_more_is_a_note():
    result = compare([facts(**TMA)], [facts(async_copy_bytes={})])
    assert [(f.field, f.severity) for f in result.findings] == [("tma_copies", "note")]


def test_what_is_read_by_tma_is_said():
    assert summary.load_words(facts(tma_copies=2, async_copy_bytes={})) == ["TMA"]
    assert summary.load_words(facts(tma_copies=2, async_copy_bytes={"8": 1, "16": 4})) == ["8", "16", "TMA"]
    assert summary.load_words(facts()) == ["16"]


def test_more_registers_or_code_at_the_same_occupancy_is_a_note():
    result = compare([facts()], [facts(registers_per_thread=140, kernel_instructions=900)])
    assert (result.exit_code, result.verdict) == (0, "same")
    assert {f.field for f in result.findings} == {"registers_per_thread", "kernel_instructions"}
    assert {f.severity for f in result.findings} == {"note"}


@pytest.mark.parametrize("loads", [{"16": 8, "4": 1}, {"16": 20, "4": 2}, {"16": 4}])
def test_a_few_narrow_loads_beside_wide_ones_do_not_fail(loads: dict[str, int]):
    result = compare([facts()], [facts(async_copy_bytes=loads)])
    assert (result.exit_code, result.verdict) == (0, "same")


def test_missing_and_extra_entries_and_more_launches():
    result = compare([facts(), facts(kernel="gone")], [facts(), facts(kernel="new")])
    assert (result.verdict, result.exit_code) == ("broken", 1)
    assert [(f.kernel, f.severity) for f in result.findings] == [("gone", "missing"), ("new", "extra")]
    assert compare([facts()], [facts(), facts(kernel="new")]).exit_code == 0
    parts = [facts(kernel="k/dq"), facts(kernel="k/dkv")]
    result = compare(parts, [*parts, facts(kernel="k/delta")])
    assert [(f.field, f.severity, f.reason) for f in result.findings] == [
        ("launches", "worse", "3 launches instead of 2")
    ]


def test_changed_compiler_is_named_and_no_excuse():
    result = compare([facts()], [facts(spill_store_bytes=348)], {**COMPILERS, "triton": "3.8.0", "torch": "2.14.0"})
    assert result.exit_code == 1
    assert result.compiler_changes() == ["triton 3.7.1 -> 3.8.0"]
    assert compare([facts()], [facts()], {**COMPILERS, "triton": "3.8.0"}).exit_code == 0


def test_facts_file_there_and_back(tmp_path: Path):
    document = FactsDocument(compilers=COMPILERS, facts=[
        facts(problem=Problem(d_model=768, n_head=12)), Facts(kernel="k", gpu="t4", compute_capability="7.5",
                                                              status="unsupported", reason="why")])  # fmt: skip
    write_facts(tmp_path / "facts.json", document)
    assert read_facts(tmp_path / "facts.json") == document
    assert [path.name for path in tmp_path.iterdir()] == ["facts.json"]


def test_saving_again_changes_a_file_only_where_the_code_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "facts.json"
    saved = []
    for arguments in (["--no-cache"], [], ["--no-cache"]):  # compiled anew, kept, compiled anew
        assert main([*sample_arguments(), *arguments, "--save", str(path), "--json"]) == 0
        saved.append((path.read_bytes(), json.loads(capsys.readouterr().out)["facts"][0]))
    assert len({entry["compile_seconds"] for _, entry in saved}) > 1  # what was noisy
    assert len({content for content, _ in saved}) == 1
    (old,) = read_facts(path).facts
    for changed in ({"spill_store_bytes": 4}, {"code_hash": "another"}):
        new = msgspec.structs.replace(old, compile_seconds=9.0, **changed)
        write_facts(path, FactsDocument(compilers=COMPILERS, facts=[new]))
        assert read_facts(path).facts == [new]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"schema_version": 2, "compilers": {}, "facts": "of another shape"}', "newer andrea-bench (schema 2"),
        ('{"schema_version": 1, "comp', "no Facts file"),
        ('{"schema_version": 1, "compilers": {}, "facts": [{"kernel": 3}]}', "no Facts file"),
        ("[1, 2]", "no Facts file"),
        ("\xff\xfe", "no Facts file"),
    ],
)
def test_files_that_are_no_facts(content: str, message: str, tmp_path: Path):
    path = tmp_path / "facts.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(BadInput, match=str(path)) as caught:
        read_facts(path)
    assert message in str(caught.value)
    with pytest.raises(BadInput, match="can't be read"):
        read_facts(tmp_path / "absent.json")
