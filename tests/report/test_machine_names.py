"""What a machine is called in answers: as its Run names it, else by its kind."""

from typing import Any

import pytest
from made_up import RUN

from andrea_bench.report.answers import answers
from andrea_bench.report.rows import group_rows
from andrea_bench.report.words import kind_of, machine_name
from andrea_bench.store import read_run

CPU = {"device": "cpu", "cpu": {"model": "AMD EPYC"}}
H200 = {"device": "cuda:1", "cpu": {"model": "Xeon"}, "gpu": {"name": "NVIDIA H200"}}


@pytest.mark.parametrize(
    ("device", "environment", "name"),
    [
        ("cpu", CPU, "AMD EPYC (1 thread)"),
        ("cpu:threads=2", CPU, "AMD EPYC (2 threads)"),
        ("cpu", {}, "this CPU"),
        ("cpu", None, "this CPU"),
        ("cpu:threads=2", None, "this CPU (2 threads)"),
        ("cuda:1", H200, "NVIDIA H200"),
        ("cpu", H200, "Xeon (1 thread)"),
        # The GPU that is named is the one of that device; another one may be another model.
        ("cuda:0", H200, "this GPU (cuda:0)"),
        ("cuda", CPU, "this GPU (cuda)"),
        ("cuda:1", {**H200, "gpu": None}, "this GPU (cuda:1)"),
        ("cuda:1", {**H200, "gpu": {"uuid": "GPU-1", "name": None}}, "this GPU (cuda:1)"),
        ("xpu:0", CPU, "xpu:0"),
    ],
)
def test_machine_name(device: str, environment: dict[str, Any] | None, name: str) -> None:
    assert machine_name(device, environment) == name


def test_every_answer_names_the_machine_of_its_run() -> None:
    stored = read_run(RUN)
    groups = group_rows(stored.records)
    named, unnamed = answers(groups, stored.head.environment), answers(groups)
    assert len(named) == len(unnamed) > 30
    for one, other in zip(named, unnamed, strict=True):
        assert one.text.startswith("on Example CPU (1 thread), float32, batch ")
        assert other.text == one.text.replace("Example CPU (1 thread)", "this CPU")


def test_reasons_of_one_kind_are_the_same_text() -> None:
    reasons = ("other processes kept 1.74 of 2 CPUs busy", "other processes kept 0.9 of 16 CPUs busy")
    assert {kind_of(reason) for reason in reasons} == {"other processes kept N of N CPUs busy"}
