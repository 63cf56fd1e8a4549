"""`list`: what there is, as a table and as one JSON document."""

import json
import subprocess
import sys

import pytest

from andrea_bench.cli.main import main
from andrea_bench.hardware import gpus
from andrea_bench.kernel import kernels
from andrea_bench.suite import suites


def _json(capsys: pytest.CaptureFixture[str], what: str) -> list[dict[str, object]]:
    assert main(["list", what, "--json"]) == 0
    document: dict[str, list[dict[str, object]]] = json.loads(capsys.readouterr().out)
    assert list(document) == [what]
    return document[what]


def test_gpus_as_json_carry_sources(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in _json(capsys, "gpus")}
    assert list(rows) == list(gpus())
    assert rows["h200_sxm"]["memory_bandwidth_gb_per_s"] == 4800
    assert "4.8 TB/s" in rows["h200_sxm"]["sources"]["memory_bandwidth_gb_per_s"][0]  # type: ignore[index]
    assert rows["v100_pcie"]["tf32_dense_tflops"] is None


def test_gpus_as_table_mark_what_is_unsure(capfd: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "andrea_bench", "list", "gpus"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = {line.split()[1]: line for line in done.stdout.splitlines() if len(line.split()) > 2}
    assert "152?" in lines["gb200"]
    assert "128 " in lines["rtx_4090"]
    assert "?" not in lines["rtx_4090"]
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_suites_and_kernels_are_the_registries(capsys: pytest.CaptureFixture[str]) -> None:
    assert [row["name"] for row in _json(capsys, "suites")] == list(suites())
    listed = [(row["op"], row["kernel"]) for row in _json(capsys, "kernels")]
    assert listed == [(kernel.op, kernel.name) for kernel in kernels()]


def test_models_are_the_presets(capsys: pytest.CaptureFixture[str]) -> None:
    names = [row["name"] for row in _json(capsys, "models")]
    assert {"andrea-12m", "andrea-120m", "andrea-480m"} <= set(names)


def test_an_unknown_kind_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "cards"]) == 2
    assert "gpus" in capsys.readouterr().err


def test_list_imports_no_heavy_library() -> None:
    code = (
        "import sys; from andrea_bench.cli.main import main; main(['list', 'gpus', '--json']);"
        "heavy = {'torch', 'triton', 'polars', 'numpy', 'scipy'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
