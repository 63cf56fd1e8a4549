"""The project's own structural gate: what its kernels compile to against the baselines in reports/structure/."""

import re
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the package triton is not installed")

from andrea_bench.cli.main import main
from andrea_bench.inspect.document import read_facts
from andrea_bench.kernel import kernels

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "reports" / "structure"
BASELINES = re.findall(r"--save reports/structure/(\S+)", (ROOT / "Makefile").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", BASELINES)
def test_no_kernel_got_worse(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    baseline = FOLDER / name
    assert baseline.is_file(), f"no baseline {baseline}: `make structure` writes it"
    # This machine's own cache: the same code is compiled once, not at every `make test`.
    monkeypatch.delenv("ANDREA_BENCH_CACHE")
    code = main(["inspect", "--check", str(baseline)])
    assert code == 0, f"{capsys.readouterr().out}\nif that is meant: `make structure`"


def test_no_baseline_is_left_behind():
    assert {path.name for path in FOLDER.glob("*.json")} == set(BASELINES)


def test_baselines_cover_every_kernel_and_kind_of_machine_code():
    facts = [one for name in BASELINES for one in read_facts(FOLDER / name).facts]
    gpus = {"rtx_4090", "a100_sxm4_80gb", "h200_sxm", "b200", "rtx_5090"}
    compiled = {kernel.name for kernel in kernels() if kernel.launches}
    assert len(compiled) >= 8
    assert {(one.kernel.partition("/")[0], one.gpu) for one in facts} == {(k, g) for k in compiled for g in gpus}, (
        "`make structure` renews the baselines"
    )
    assert {one.problem.head_dim for one in facts if one.problem} == {64, 72}
    assert {one.status for one in facts} <= {"ok", "unsupported"}
    roots = {instruction.instruction.partition(".")[0] for one in facts for instruction in one.mma or []}
    assert roots == {"HMMA", "HGMMA", "UTCHMMA"}
