"""`inspect` on the command line: what it writes, its exit codes, and bad input."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("triton", reason="the package triton is not installed")

from sample_launch import EXACT, PADDED, TYPES, USEFUL_72

import andrea_bench
from andrea_bench import kernel as registry
from andrea_bench.cli.main import main

SCHEMA = json.loads((Path(andrea_bench.__file__).parent / "schema" / "facts.schema.json").read_text())
SAMPLES = Path(__file__).parent / "sample_kernels.py"
COPY = ["--module", f"{SAMPLES}:sample_copy", "--signature", "*fp32,*fp32,i32", "--constexpr", "block=256"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["inspect", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    ended, out, err = run(capsys, *arguments, "--json")
    assert ended == code, err
    found: dict[str, Any] = json.loads(out)
    jsonschema.validate(found, SCHEMA)
    return found


def test_project_kernels_side_by_side(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    arguments = ["--gpu", "rtx_4090", "-a", "head_dim=64,72", "--kernel", "triton_exact,triton_padded"]
    found = document(capsys, *arguments)
    assert [(f["kernel"], f["problem"]["head_dim"], f["computed_width_qk"]) for f in found["facts"]] == [
        ("triton_exact", 64, 64), ("triton_padded", 64, 64), ("triton_exact", 72, 80), ("triton_padded", 72, 128)
    ]  # fmt: skip
    assert {f["problem"]["dtype"] for f in found["facts"]} == {"bfloat16"}
    assert set(found["compilers"]) >= {"triton", "ptxas", "torch"}
    code, out, err = run(capsys, *arguments, "--markdown", str(tmp_path / "facts.md"))
    assert code == 0
    text = " ".join(out.split())
    assert "72 on RTX 4090 (bfloat16 forward): triton_exact: 80 wide, 11 % waste" in text
    assert "triton_padded: 128 wide, 78 % waste" in text
    assert re.search(r"64\* 64 0 %", text)
    assert "compiled, not measured" in text
    assert max(map(len, out.splitlines())) <= 80
    assert "4 compiled (4 kept)" in err
    assert "| 72 | 128 | 78 % |" in (tmp_path / "facts.md").read_text()


def test_good_targets_go_on_beside_bad_ones(capsys: pytest.CaptureFixture[str]):
    found = document(capsys, "--gpu", "sm_90,sm_86,sm_121a,sm_70,t4,sm_999", *COPY)
    rows = {f["gpu"]: (f["compute_capability"], f["status"], f["reason"]) for f in found["facts"]}
    assert [(gpu, *row[:2]) for gpu, row in rows.items()] == [
        ("sm_90", "9.0", "ok"), ("sm_86", "8.6", "ok"), ("sm_121a", "12.1", "unsupported"),
        ("sm_70", "7.0", "unsupported"), ("t4", "7.5", "unsupported"), ("sm_999", "99.9", "unsupported"),
    ]  # fmt: skip
    assert "known: sm_80" in rows["sm_999"][2]
    # Where none could be compiled, that is the exit code.
    found = document(capsys, "--gpu", "sm_70", *COPY, code=4)
    assert set(found["facts"][0]) == {
        "kernel", "gpu", "compute_capability", "problem", "direction", "status", "reason"
    }  # fmt: skip


def test_bfloat16_below_8_0(capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(capsys, "--gpu", "t4", "-a", "head_dim=64", "--kernel", "triton_exact")
    assert code == 4
    assert "bfloat16 needs compute capability 8.0" in " ".join(out.split())


def test_shared_memory_beyond_the_limit_is_a_row(capsys: pytest.CaptureFixture[str]):
    matmul = ["--module", f"{SAMPLES}:sample_matmul", "--signature", "*fp32:16,*fp32:16,*fp32:16,i32:16",
              "--constexpr", "m=128,n=128,k=128,precision=tf32", "--num-warps", "8", "--num-stages", "2"]  # fmt: skip
    found = document(capsys, "--gpu", "rtx_3090,rtx_4090,a100_sxm4_80gb,rtx_5090", *matmul)
    status = {f["gpu"]: f["status"] for f in found["facts"]}
    assert status == {
        "rtx_3090": "unsupported", "rtx_4090": "unsupported", "a100_sxm4_80gb": "ok", "rtx_5090": "unsupported"
    }  # fmt: skip
    reasons = [f["reason"] for f in found["facts"] if f["status"] != "ok"]
    assert all("on-chip shared memory" in reason and "101376" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "rtx_4900", *COPY], "rtx_4090"),
        (["--gpu", "gfx942", *COPY], "AMD"),
        (["--gpu", "90", *COPY], "sm_90"),
        (["--gpu", "sm90", *COPY], "sm_90"),
        (["--gpu", "sm_9", *COPY], "sm_90"),
        (["--kernel", "triton_exakt"], "triton_exact"),
        (["--kernel", "eager"], "no Triton kernel"),
        (["--kernel", "triton_exact", *COPY], "--module and --kernel"),
        (["--module", "nowhere.py:kernel", "--signature", "*fp32"], "no file nowhere.py"),
        (["--module", f"{SAMPLES}:sample_cpy", "--signature", "*fp32"], "sample_copy"),
        (["--module", f"{SAMPLES}", "--signature", "*fp32"], "path.py:kernel_name"),
        (COPY[:2], "--signature"),
        (["--signature", "*fp32"], "belongs to --module"),
        ([*COPY[:4], "--constexpr", "block"], "NAME=VALUE"),
        ([*COPY[:4], "--constexpr", "blok=3"], "no argument blok"),
        (COPY[:4], "sample_copy: its constexprs block have no value"),
        ([*COPY, "--grid", "1,2,3,4"], "--grid"),
        ([*COPY, "--dump", "asm", "x"], "sass"),
        ([*COPY, "--jobs", "0"], "--jobs"),
        ([*COPY, "--time-limit", "0"], "--time-limit"),
        ([*COPY, "--check", "nowhere.json"], "nowhere.json"),
        ([*COPY, "--save", "/nowhere/facts.json"], "/nowhere"),
        (["-a", "head_dim=0"], "head_dim"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_interpreter_newer_file_and_compiler_errors(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    newer = tmp_path / "facts.json"
    newer.write_text('{"schema_version": 99, "compilers": {}, "facts": []}')
    code, _, err = run(capsys, *COPY, "--check", str(newer))
    assert (code, "schema 99" in err) == (2, True)
    broken = ["--module", f"{SAMPLES}:sample_broken", "--signature", "*fp32,*fp32", "--constexpr", "block=64"]
    found = document(capsys, "--gpu", "rtx_4090", *broken, code=4)
    assert found["facts"][0]["status"] == "error"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    code, out, err = run(capsys, *COPY)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "TRITON_INTERPRET" in err


def test_strict_counts_compiler_errors(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One file, two kernels in a row: the good one goes on, --strict makes the other's error count."""
    # What the file registers must not stay for other tests of this process.
    known = {(kernel.op, kernel.name): kernel for kernel in registry.kernels()}  # all, or none would be there later
    monkeypatch.setattr("andrea_bench.kernel._REGISTRY", known)
    kernels = tmp_path / "mine.py"
    kernels.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(SAMPLES.parent)!r})\n"
        "from sample_kernels import sample_broken, sample_copy\n"
        "from andrea_bench.kernel import TritonLaunch, kernel\n\n\n"
        "def launches(problem, compute_capability):\n"
        "    function, part = (sample_broken, 'b') if compute_capability == '9.0' else (sample_copy, None)\n"
        "    types = {'source': '*fp32', 'target': '*fp32', 'size': 'i32'}\n"
        "    signature = {n: t for n, t in types.items() if n in function.arg_names}\n"
        "    return [TritonLaunch(function, signature, {'block': 256}, 4, 1, (1, 1, 1))]\n\n\n"
        "@kernel('attention', 'mine', launches=launches)\n"
        "def mine(problem, inputs):\n"
        "    raise NotImplementedError\n"
    )
    arguments = ["--kernel", f"{kernels}:mine", "--gpu", "rtx_4090,h200_sxm"]
    found = document(capsys, *arguments)
    assert [f["status"] for f in found["facts"]] == ["ok", "error"]
    assert document(capsys, *arguments, "--strict", code=4)["facts"][0]["blocks"] == 1


def test_what_is_assumed_of_the_arguments_is_said(capsys: pytest.CaptureFixture[str]):
    """The form of --help: one hint for a number leaves pointers what they are."""
    arguments = ["--gpu", "rtx_4090", *COPY[:3], "*fp32,*fp32,i32:16", "--constexpr", "block=1024"]
    facts = document(capsys, *arguments)["facts"][0]
    assert set(facts["global_load_bytes"]) == {"16"}
    _, _, err = run(capsys, *arguments)
    assert "multiples of 16: source, target, size; that need not be: none" in err


def test_dump_writes_what_was_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    code, _, _ = run(capsys, "--gpu", "rtx_4090", *COPY, "--dump", "ptx,sass", str(tmp_path / "texts"))
    assert code == 0
    texts = {path.suffix: path.read_text() for path in (tmp_path / "texts").iterdir()}
    assert set(texts) == {".ptx", ".sass"}
    assert ".target sm_89" in texts[".ptx"]
    assert "EXIT" in texts[".sass"]


def test_baseline_of_project_kernels_there_and_back(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    saved = tmp_path / "facts.json"
    arguments = ["--gpu", "rtx_4090", "-a", "head_dim=64,72", "--kernel", "triton_exact"]
    assert run(capsys, *arguments, "--save", str(saved))[0] == 0
    jsonschema.validate(json.loads(saved.read_text()), SCHEMA)
    code, out, _ = run(capsys, "--check", str(saved))
    assert code == 0
    assert "verdict: same" in out
    # Kernels that the baseline lacks are named; entries that are gone fail.
    assert "triton_padded" in out
    content = json.loads(saved.read_text())
    content["facts"][0]["kernel"] = "triton_gone"
    content["compilers"]["triton"] = "3.6.0"
    saved.write_text(json.dumps(content))
    code, out, _ = run(capsys, "--check", str(saved))
    assert code == 1
    assert out.startswith("compiler changed: triton 3.6.0 -> ")
    assert "error: triton_gone on rtx_4090" in out
    assert "verdict: broken" in out


def test_facts_of_sample_through_the_verb(capsys: pytest.CaptureFixture[str]):
    constants = ",".join(f"{name}={value}" for name, value in EXACT.items())
    found = document(
        capsys, "--gpu", "rtx_4090", "--module", f"{SAMPLES}:sample_attention", "--signature",
        TYPES.replace("*bf16", "*bf16:16"), "--constexpr", constants, "--num-stages", "2", "--grid", "16,12",
    )  # fmt: skip
    (facts,) = found["facts"]
    assert (facts["kernel"], facts["problem"], facts["grid"]) == ("sample_attention", None, [16, 12, 1])
    assert facts["computed_width_pv"] == 80


def test_a_baseline_of_other_kernels_says_how_to_name_them(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    saved = str(tmp_path / "mine.json")
    assert run(capsys, "--gpu", "rtx_4090", *COPY, "--save", saved)[0] == 0
    code, _, err = run(capsys, "--check", saved)
    assert code == 2 and "sample_copy; name your own with --module" in err


def test_waste_of_ones_own_kernel_counts_by_what_is_said_to_be_useful(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    saved = str(tmp_path / "mine.json")

    def inspect(constants: dict[str, object], *more: str) -> tuple[int, str, str]:
        named = ",".join(f"{name}={value}" for name, value in constants.items())
        return run(
            capsys, "--gpu", "rtx_4090", "--module", f"{SAMPLES}:sample_attention", "--signature", TYPES, "--constexpr",
            named, "--num-stages", "2", "--useful-mma-flops", str(USEFUL_72), *more,
        )  # fmt: skip

    assert inspect(EXACT, "--save", saved)[0] == 0
    # 80 and then 128 wide for 72 that are useful.
    code, out, _ = inspect(PADDED, "--check", saved)
    assert code == 1 and "1.111 -> 1.778 matrix FLOPs issued for each useful one" in " ".join(out.split())
    before = Path(saved).read_bytes()
    code, _, err = inspect(PADDED, "--check", saved, "--save", f"{tmp_path}/./mine.json")
    assert code == 1 and "mine.json stays as it was" in err and Path(saved).read_bytes() == before
    assert inspect(EXACT, "--check", saved, "--save", saved)[0] == 0
    code, _, err = inspect(PADDED, "--check", saved, "--save", str(tmp_path / "other.json"))
    assert code == 1 and "other.json: 1 entry\n" in err
    assert run(capsys, "--useful-mma-flops", "1")[0] == 2
    code, _, err = inspect(EXACT, "--useful-mma-flops", "0", "--check", saved)
    assert code == 2 and "repeat it" in err
    code, _, err = inspect(EXACT, "--useful-mma-flops", str(2 * USEFUL_72))
    assert code == 2 and f"{2 * USEFUL_72} is more than the {USEFUL_72 * 80 // 72} that are issued on rtx_4090" in err


def test_kernels_that_the_baseline_could_hold_and_does_not_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    saved = str(tmp_path / "facts.json")
    assert run(capsys, "--gpu", "rtx_4090", "-a", "head_dim=64", "--kernel", "triton_exact", "--save", saved)[0] == 0
    code, out, _ = run(capsys, "--check", saved)
    assert code == 0 and "triton_padded on all: kernel: not in the baseline; --save without --check adds it" in out
    assert "triton_decode" not in out  # of another direction than the baseline's Problems
