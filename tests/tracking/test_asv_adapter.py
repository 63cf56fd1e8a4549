"""The suites as asv benchmarks: their lists, skips, checks and tracked values."""

import importlib.util
import json
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from andrea_kernels.flash.tiles import Tile, trying

from andrea_bench import asv_adapter, kernel
from andrea_bench.asv_adapter import StructureBenchmark, lists, structure_values, working_tree
from andrea_bench.inspect.facts import Facts
from andrea_bench.inspect.survey import survey
from andrea_bench.problem import Problem
from andrea_bench.suite import suites

ROOT = Path(__file__).parents[2]
CELL = (4, 64, "float32")


def load(suite: str, root: Path = ROOT) -> Any:
    """The benchmark class of benchmarks/SUITE.py, as asv finds it."""
    name = f"benchmark_{suite}"
    spec = importlib.util.spec_from_file_location(name, root / "benchmarks" / f"{suite}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return getattr(sys.modules[name], suite.capitalize())


def test_every_suite_has_its_class_of_few_lines() -> None:
    assert {file.stem for file in (ROOT / "benchmarks").glob("*.py")} == {*suites(), "structure", "__init__"}
    for name in suites():
        assert load(name).suite == name
        assert len((ROOT / "benchmarks" / f"{name}.py").read_text().splitlines()) <= 8


def test_benchmarks_are_free_of_torch() -> None:
    names = ", ".join(f"benchmarks.{name}" for name in (*suites(), "structure"))
    code = f"import sys, {names}; print({{'torch', 'triton', 'polars'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_lists_are_those_of_the_working_tree_whatever_is_installed(tmp_path: Path) -> None:
    """asv numbers combinations; a commit whose suite has a kernel more or less must not shift the others."""
    for part in ("andrea_bench", "kernels", "benchmarks"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "andrea_bench/suites/output.py"
    old = '("output_projection", "concat_matmul"),'
    file.write_text(file.read_text().replace(old, f'("output_projection", "einsum"),\n        {old}'))
    assert working_tree(tmp_path)["suites"]["output"][0] == "einsum"
    assert load("output", tmp_path).params[0][0] == "einsum"
    assert load("output").params[0][0] == "concat_matmul"


def test_a_tree_that_can_not_be_listed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "andrea_bench", tmp_path / "andrea_bench", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "andrea_bench/suites/output.py").write_text("SUITE = nothing")
    with pytest.raises(asv_adapter.BadInput, match=r"can't be listed: NameError"):
        working_tree(tmp_path)


def test_lists_are_the_same_without_a_gpu_and_leave_long_compilations_out() -> None:
    assert "triton_exact" in lists()["suites"]["attention"] and "flash_attn" in lists()["suites"]["attention"]
    assert not {"compiled", "flex"} & set(lists()["suites"]["attention"])


def test_a_kernel_that_the_commit_lacks_is_skipped() -> None:
    with pytest.raises(NotImplementedError, match="has no kernel later"):
        load("output")().setup("later", *CELL)


@pytest.mark.parametrize(
    ("name", "dtype", "why"),
    [("einsum", "bfloat16", "GPUs"), ("triton_output_projection", "float32", "cuda only")],
)
def test_what_a_cpu_can_not_run_is_skipped_with_its_reason(
    name: str, dtype: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asv_adapter, "_device", lambda: "cpu")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(NotImplementedError, match=why):
        load("output")().setup(name, 4, 64, dtype)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asv_adapter, "_device", lambda: "cpu")


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("suite", sorted(suites()))
def test_each_suite_prepares_once_and_runs(suite: str) -> None:
    """Set-up runs before each sample; it must do its work for the first alone."""
    benchmark = load(suite)()
    for name in benchmark.params[0][:2]:
        sizes = (benchmark.n_heads[0], benchmark.head_dims[0], "float32")
        benchmark.setup(name, *sizes)
        first = benchmark._prepared
        benchmark.setup(name, *sizes)
        assert benchmark._prepared is first
        benchmark.time_call(name, *sizes)


@pytest.mark.usefixtures("on_cpu")
def test_alignment_takes_the_width_of_its_head_dim() -> None:
    benchmark = load("alignment")()
    benchmark.setup("eager", 12, 65, "float32")
    assert (benchmark._problem.n_head, benchmark._problem.head_dim) == (12, 65)
    benchmark.setup("fused_qkv", 12, 65, "float32")
    assert (benchmark._problem.n_head, benchmark._problem.head_dim) == (1, 12 * 65)


@pytest.mark.usefixtures("on_cpu")
def test_peak_memory_is_that_of_the_result() -> None:
    """einsum of heads that lie in place: nothing but the (1, 128, 256) float32 result and a copy of the heads."""
    benchmark = load("output")()
    benchmark.setup("strided_matmul", *CELL)
    assert benchmark.track_peak_memory("strided_matmul", *CELL) == 128 * 256 * 4


@pytest.mark.usefixtures("on_cpu")
def test_a_ratio_is_taken_against_the_baseline_and_not_of_it() -> None:
    from asv_runner.benchmarks.mark import SkipNotImplemented

    benchmark = load("output")()
    benchmark.setup("einsum", *CELL)
    assert 0.01 < benchmark.track_ratio("einsum", *CELL) < 100
    with pytest.raises(SkipNotImplemented, match="GPUs only"):
        benchmark.track_energy("einsum", *CELL)
    benchmark.setup("concat_matmul", *CELL)
    with pytest.raises(SkipNotImplemented, match="is the baseline"):
        benchmark.track_ratio("concat_matmul", *CELL)


TOUCHES = """
import importlib, pkgutil, sys
sys.argv = ["asv", "run_server"]  # as in asv's fork server, where torch is imported ahead of the forks
import torch
touched = []
def stand_in(name):
    return lambda *a, **k: touched.append(name) or 0
for name in ("_lazy_init", "is_available", "device_count", "current_device", "get_device_properties", "synchronize"):
    setattr(torch.cuda, name, stand_in(name))
import benchmarks
for module in pkgutil.iter_modules(benchmarks.__path__):
    loaded = importlib.import_module("benchmarks." + module.name)
    [kind() for kind in vars(loaded).values() if isinstance(kind, type)]
assert "torch._dynamo" in sys.modules
print(touched)
"""


def test_nothing_touches_cuda_before_the_fork() -> None:
    """CUDA does not survive a fork: neither imports nor instances may ask torch for it."""
    done = subprocess.run([sys.executable, "-c", TOUCHES], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A GPU that is not there: what is prepared is a stand-in, and the calls in order are what is known of it."""
    calls: list[str] = []
    prepared = types.SimpleNamespace(call=lambda: calls.append("call"))
    monkeypatch.setattr(asv_adapter, "_device", lambda: "cuda")
    monkeypatch.setattr(asv_adapter, "_prepare", lambda *_: prepared)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: calls.append("synchronize"))
    return calls


def test_on_a_gpu_the_clock_waits_for_it(on_cuda: list[str]) -> None:
    benchmark = load("output")()
    benchmark.setup("einsum", 4, 64, "bfloat16")  # skipped on a CPU
    first = benchmark.timer()
    benchmark.time_call("einsum", 4, 64, "bfloat16")
    assert benchmark.timer() >= first
    assert on_cuda == ["synchronize", "call", "synchronize"]


@pytest.mark.usefixtures("on_cuda")
@pytest.mark.parametrize(
    ("status", "counters", "said"),
    [
        ("ok", {"gpu_energy_per_call": {"joules_per_call": None, "reason": "window too short"}}, "window too short"),
        ("ok", {}, "no GPU counters"),
        ("throttled", {}, "throttled: too hot"),
        ("ok", {"gpu_energy_per_call": {"joules_per_call": 0.25}}, None),
    ],
)
def test_energy_is_a_number_or_skipped_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, status: str, counters: dict[str, Any], said: str | None
) -> None:
    from asv_runner.benchmarks.mark import SkipNotImplemented

    windows: list[float] = []

    def measured(task: Any, clock: Any, *, watch: Any) -> list[Any]:
        windows.append(task.protocol.energy_window_s)
        assert watch == "watch" and clock == "cuda_event"
        return [types.SimpleNamespace(kernel="einsum", status=status, reason="too hot", counters=counters)]

    monkeypatch.setattr("andrea_bench.measure.group.measure_group", measured)
    monkeypatch.setattr("andrea_bench.measure.worker.gpu_identity", lambda device: ("uuid of " + device, None))
    monkeypatch.setattr("andrea_bench.measure.counters.Watch", lambda *_: "watch")
    monkeypatch.setattr("andrea_bench.measure.clock.make_clock", lambda mode, cache, device: mode)
    benchmark = load("output")()
    benchmark.setup("einsum", *CELL)
    if said is None:
        assert benchmark.track_energy("einsum", *CELL) == 0.25
    else:
        with pytest.raises(SkipNotImplemented, match=said):
            benchmark.track_energy("einsum", *CELL)
    assert windows == [asv_adapter.ENERGY_WINDOW_S]


@pytest.mark.usefixtures("on_cpu")
def test_a_kernel_that_is_wrong_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any error but NotImplementedError fails a benchmark of asv's."""
    right = kernel.find_kernel("output_projection", "einsum")

    def wrong(problem: Any, inputs: Any) -> kernel.Work:
        return kernel.Work(run=lambda: (inputs["heads"].transpose(1, 2).flatten(2) @ inputs["w_o"]) * 1.01)

    monkeypatch.setitem(kernel._REGISTRY, ("output_projection", "einsum"), kernel.Kernel(right.op, right.name, wrong))
    with pytest.raises(ArithmeticError, match="einsum is wrong: relative error 1"):
        load("output")().setup("einsum", *CELL)


def facts(**fields: Any) -> Facts:
    return Facts(kernel="k", gpu="rtx_4090", compute_capability="8.9", **fields)


def test_structure_of_several_launches_by_hand() -> None:
    values = structure_values([
        facts(spill_store_bytes=8, spill_load_bytes=12, registers_per_thread=168, occupancy=0.5, mma_efficiency=0.9,
              global_load_bytes={"16": 3, "4": 1}, async_copy_bytes={"16": 4}),
        facts(spill_store_bytes=0, spill_load_bytes=0, registers_per_thread=40, occupancy=1.0, mma_efficiency=None,
              global_load_bytes={"2": 2}),
    ])  # fmt: skip
    assert values == {"spilled_bytes": 20, "registers": 168, "issued_to_useful": 1.111111, "occupancy_loss": 0.5,
                      "scalar_load_share": 0.3}  # fmt: skip


def test_a_change_that_adds_spills_shows_where_no_gpu_is() -> None:
    """triton_exact as it is for compute capability 8.9, and with two warps to hold the same tile."""
    one = kernel.find_kernel("attention", "triton_exact")
    problem = Problem(n_head=12, head_dim=64, seq_len=1024, dtype="bfloat16")
    before = structure_values(survey([one], [problem], ["rtx_4090"]))
    with trying("forward", Tile(128, 64, 2, 2)):
        after = structure_values(survey([one], [problem], ["rtx_4090"]))
    found = {("triton_exact", 64, "rtx_4090"): after}
    benchmark = object.__new__(StructureBenchmark)
    benchmark.setup(found, "triton_exact", 64, "rtx_4090")
    assert before["spilled_bytes"] == 0
    assert benchmark.track_spilled_bytes(found, "triton_exact", 64, "rtx_4090") > 1000  # type: ignore[attr-defined]


def test_structure_that_is_not_there() -> None:
    refused = {("k", 64, "t4"): structure_values([facts(status="unsupported", reason="too old")])}
    benchmark = object.__new__(StructureBenchmark)
    with pytest.raises(NotImplementedError, match="too old"):
        benchmark.setup(refused, "k", 64, "t4")
    with pytest.raises(NotImplementedError, match="no kernel later"):
        benchmark.setup(refused, "later", 64, "t4")
    broken = {("k", 64, "t4"): structure_values([facts(status="error", reason="ptxas fails")])}
    benchmark.setup(broken, "k", 64, "t4")
    with pytest.raises(RuntimeError, match="does not compile for t4: ptxas fails"):
        benchmark.track_registers(broken, "k", 64, "t4")  # type: ignore[attr-defined]


def test_values_that_asv_stores_are_json() -> None:
    assert json.loads(json.dumps(lists()))["compiled"] == list(load("structure").params[0])
