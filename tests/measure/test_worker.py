"""The measuring process's own parts that need no process."""

import pytest

torch = pytest.importorskip("torch", reason="the worker asks torch for its device")

from andrea_bench.measure.worker import _cuda_reason  # noqa: E402


@pytest.mark.parametrize(("device", "index"), [("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)])
def test_the_device_that_is_measured_is_the_current_one(
    device: str, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events and graphs are of the current device: with another one they would time an idle stream."""
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda name: None)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert _cuda_reason(device) is None
    assert chosen == [index]
