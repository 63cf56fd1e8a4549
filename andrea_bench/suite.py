"""Suite: a question, the Kernels set side by side to answer it, and the one that is the baseline."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from andrea_bench.errors import unknown_name
from andrea_bench.problem import Op, Problem

Member = tuple[Op, str]  # a Kernel of a Suite: (op, kernel)
Groups = list[tuple[Problem, tuple[Member, ...]]]


@dataclass(frozen=True)
class Answer:
    """A one-line answer: the time of `kernel` over the time of `against`, in one Group.

    text is a format string over {ratio} (as in "0.62 (0.60 to 0.64)"), {percent}, and the Problem's fields.
    """

    kernel: str
    against: str
    text: str


@dataclass(frozen=True)
class Suite:
    """A question asked of a Problem.

    members: the Kernels, in the order of tables. baseline: the one that others are compared with.
    defaults: axes that this Suite needs other than the Problem's own defaults (as direction=decode).
    groups: makes the Groups of one Problem; by default one Group of all members.
    wholes: kernels that are the whole of others: (kernel, the members that are its stages).
    answers: the one-line answers that its Groups give.
    """

    name: str
    question: str
    members: tuple[Member, ...]
    baseline: str
    defaults: Mapping[str, list[object]] = field(default_factory=dict)
    groups: Callable[["Suite", Problem], Groups] = lambda suite, problem: [(problem, suite.members)]
    wholes: tuple[tuple[str, tuple[Member, ...]], ...] = ()
    answers: tuple[Answer, ...] = ()


@cache
def suites() -> dict[str, Suite]:
    """All suites by name: the constant SUITE of every file in andrea_bench/suites."""
    package = importlib.import_module("andrea_bench.suites")
    found = [
        importlib.import_module(f"andrea_bench.suites.{module.name}").SUITE
        for module in pkgutil.iter_modules(package.__path__)
    ]
    return {suite.name: suite for suite in found}


def find_suite(name: str) -> Suite:
    """The suite of that name. Raises BadInput with the closest known one."""
    if name not in suites():
        raise unknown_name("suite", name, suites())
    return suites()[name]
