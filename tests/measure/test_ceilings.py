"""Ceilings: what is made of the times of matmuls and of a copy, and what is tried."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="ceilings are measured with torch")

from andrea_bench.errors import EnvironmentUnfit  # noqa: E402
from andrea_bench.measure import ceilings as module  # noqa: E402


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Small matmuls and a small copy; this process keeps its threads."""
    monkeypatch.setattr(module, "CPU_SIZES", (8, 16, 32))
    monkeypatch.setattr(module, "last_level_cache_bytes", lambda: 2**20)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def times(monkeypatch: pytest.MonkeyPatch, by_size: dict[int, float], copy_us: float = 1000.0) -> list[tuple[int, str]]:
    """Have a matmul of size n take by_size[n] microseconds; gives what was tried."""
    tried = []

    def best_us(device: str, call: Any, seconds: float) -> float:
        if not hasattr(call, "args"):
            return copy_us
        n, dtype = call.args[0].shape[0], str(call.args[0].dtype).removeprefix("torch.")
        tried.append((n, dtype))
        return by_size[n]

    monkeypatch.setattr(module, "_best_us", best_us)
    return tried


def test_rates_follow_from_times(monkeypatch: pytest.MonkeyPatch) -> None:
    # 2 * 8**3 = 1024 FLOP in 1 us are 1.024 GFLOP/s; of 16: 8192 in 2 us 4.096; of 32: 65536 in 32 us 2.048.
    tried = times(monkeypatch, {8: 1.0, 16: 2.0, 32: 32.0})
    found = module.ceilings("cpu", 1, lambda text: None)
    assert found.matmul_tflops == {name: pytest.approx(4.096e-3) for name in ("float32", "bfloat16", "float16")}
    assert tried == [(n, name) for name in ("float32", "bfloat16", "float16") for n in (8, 16, 32)]
    # 64 MiB read and 64 MiB written in a millisecond.
    assert found.copy_gb_per_s == pytest.approx(134.217728)
    assert found.threads == 1 and torch.get_num_threads() == 1


def test_a_matmul_that_would_take_too_long_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1024 FLOP in 0.3 s: eight times as many would take 2.4 s, over 1.5.
    tried = times(monkeypatch, {8: 3e5})
    found = module.ceilings("cpu", 1, lambda text: None)
    assert {n for n, _ in tried} == {8}
    assert found.matmul_tflops["float32"] == pytest.approx(1024 / 0.3 / 1e12)


def test_a_dtype_that_cannot_run_is_absent_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    matmul = torch.matmul

    def without_half(a: Any, b: Any, *, out: Any) -> Any:
        if a.dtype == torch.float16:
            raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'\n(more)")
        return matmul(a, b, out=out)

    monkeypatch.setattr(torch, "matmul", without_half)
    monkeypatch.setattr(module, "CEILING_SECONDS", 0.01)
    said: list[str] = []
    found = module.ceilings("cpu", 1, said.append)
    assert set(found.matmul_tflops) == {"float32", "bfloat16"} and min(found.matmul_tflops.values()) > 0
    assert "matmul float16: can't run here: \"addmm_impl_cpu_\" not implemented for 'Half' (more)" in said


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(EnvironmentUnfit, match="finds no cuda:99 here"):
        module.ceilings("cuda:99", 1, lambda text: None)
