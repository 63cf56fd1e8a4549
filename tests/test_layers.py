"""Who may import whom (DESIGN.md section 3), read from the code and tried in fresh interpreters."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "andrea_bench"
KERNELS = ROOT / "kernels" / "andrea_kernels"

LAYER_0 = {"errors", "files", "problem", "models", "axes", "where", "protocol", "record", "statistics"}
LAYER_1 = {"kernel", "suite", "suites", "plan", "hardware"}
# Layer 2, each with the heavy libraries that are its own.
LAYER_2 = {
    "environment": set(),
    "measure": {"torch"},
    "inspect": {"triton", "rich"},
    "store": {"polars"},
    "report": {"polars", "rich", "altair", "vl_convert"},
    "predict": {"numpy", "scipy"},
    "calibration": set(),
    "verdicts": {"rich"},
    "revisions": set(),
    "hardware.nvml": {"pynvml"},
}
# Compositions put parts of layers 0 to 2 together for one verb; what is heavy they leave to those parts.
COMPOSED = {"revisions", "trial", "noise", "explore", "claims", "tracking"}
HEAVY = {"torch", "triton", "numpy", "scipy", "polars", "altair", "rich", "pynvml", "vl_convert", "asv", "asv_runner"}
OWN = LAYER_0 | LAYER_1 | set(LAYER_2) | COMPOSED | {"cli", "asv_adapter", "__main__", "__init__"}


def concept(file: Path) -> str:
    """The part of the package that a file belongs to, as in `measure` or `hardware.nvml`."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:2]) if parts[:2] == ("hardware", "nvml") else parts[0]


def imports(file: Path, *, top_only: bool) -> Iterator[str]:
    """Dotted names of the modules that a file imports; top_only: not those inside functions."""
    tree = ast.parse(file.read_text())
    nested = {
        node
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(outer)
        for node in ast.walk(outer)
        if node is not outer
    }
    for node in ast.walk(tree):
        if top_only and node in nested:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def files() -> list[Path]:
    return sorted(f for f in PACKAGE.rglob("*.py") if "catalogue" not in f.parts)


@pytest.mark.parametrize("file", files(), ids=lambda f: str(f.relative_to(PACKAGE)))
def test_a_module_imports_only_what_its_layer_may(file: Path) -> None:
    part = concept(file)
    assert part in OWN, f"{part} stands in no layer of DESIGN.md section 3"
    if part in ("cli", "asv_adapter", "__main__", "__init__") or part in COMPOSED:
        assert not HEAVY & {name.partition(".")[0] for name in imports(file, top_only=True)}
        return
    own_heavy = LAYER_2.get(part, set())
    allowed_parts = LAYER_0 | ({"hardware"} | LAYER_1 if part not in LAYER_0 else set()) | {part}
    if part in LAYER_2:
        # Between parts of layer 2 only data passes: the environment, the store's reader, the card's counters.
        allowed_parts |= {"calibration", "environment", "store", "hardware.nvml"}
    for name in imports(file, top_only=False):
        top = name.partition(".")[0]
        in_statistics = part == "statistics" and top in ("numpy", "scipy")
        assert top not in HEAVY - own_heavy or in_statistics, f"{file}: imports {name}"
        if name.startswith("andrea_bench."):
            parts = name.split(".")
            reached = ".".join(parts[1:3]) if parts[1:3] == ["hardware", "nvml"] else parts[1]
            if reached in OWN:
                assert reached in allowed_parts, f"{file}: {part} imports {name}"
    if part not in LAYER_2:
        assert not HEAVY & {name.partition(".")[0] for name in imports(file, top_only=True)}


def fresh(code: str) -> set[str]:
    """Top-level modules loaded after `code` in a fresh interpreter."""
    show = "import sys; print(' '.join({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True)
    return set(done.stdout.split("\n")[-2].split())


LIGHT = [
    "errors",
    "problem",
    "models",
    "axes",
    "protocol",
    "record",
    "statistics",
    "kernel",
    "suite",
    "plan",
    "hardware",
]


@pytest.mark.parametrize("part", LIGHT)
def test_layers_0_and_1_import_without_heavy_libraries(part: str) -> None:
    assert not fresh(f"import andrea_bench.{part}") & HEAVY


def test_kernels_are_known_without_torch_and_triton() -> None:
    code = (
        "from andrea_bench.kernel import kernels; from andrea_bench.suite import suites; assert kernels() and suites()"
    )
    assert not fresh(code) & {"torch", "triton"}


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "projection"], ["list", "kernels"], ["compare", "--help"]])
def test_light_verbs_never_import_torch(arguments: list[str]) -> None:
    code = f"import sys, io; from andrea_bench.cli.main import main; assert main({arguments!r}) == 0"
    assert not fresh(code) & {"torch", "triton"}


@pytest.mark.parametrize("file", sorted(KERNELS.glob("*.py")), ids=lambda f: f.name)
def test_kernels_use_no_layer_above_the_first(file: Path) -> None:
    for name in imports(file, top_only=False):
        if name.startswith("andrea_bench."):
            assert name.split(".")[1] in LAYER_0 | LAYER_1, f"{file.name} imports {name}"


def test_measuring_needs_neither_polars_nor_altair_nor_scipy() -> None:
    code = (
        "import sys\n"
        "for name in ('polars', 'altair', 'scipy', 'vl_convert'): sys.modules[name] = None\n"
        "import andrea_bench.measure.sweep, andrea_bench.measure.group, andrea_bench.report.terminal\n"
    )
    fresh(code)
