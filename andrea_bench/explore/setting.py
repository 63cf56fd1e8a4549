"""Setting: all splits of a request on one GPU (or one machine) under one tensor parallelism, ranked."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from andrea_bench.errors import BadInput
from andrea_bench.explore.choice import Choice, add_predictions, choice, objective_value
from andrea_bench.explore.measured import add_measurements
from andrea_bench.explore.ranking import rank
from andrea_bench.explore.sentences import Sentence, sentences
from andrea_bench.explore.splits import LEAST_HEAD_DIM, MOST_HEAD_DIM, Candidates, coarse_first
from andrea_bench.hardware import Gpu
from andrea_bench.predict.efficiency import Known
from andrea_bench.problem import Problem
from andrea_bench.record import Record


class Setting(msgspec.Struct, kw_only=True):
    """The splits of one GPU, best first; those without a rank last. gpu: its catalogue name, None for a
    machine that is not in it (then all times are measured). own: the split of the user's own. rankable: False
    where the intervals tell no two splits apart. left_out: what was not looked at, with the reason."""

    gpu: str | None
    device: str
    tensor_parallel: int
    objective: str
    kernel: str
    rankable: bool
    own: str | None
    choices: list[Choice]
    left_out: list[tuple[str, str]]
    sentences: list[Sentence]
    assumed: list[str]

    @property
    def title(self) -> str:
        share = f", each of {self.tensor_parallel} GPUs" if self.tensor_parallel > 1 else ""
        return f"{self.device}{share}"


def explore_setting(
    found: Candidates,
    *,
    gpu: Gpu | None,
    device: str | None = None,
    tensor_parallel: int = 1,
    objective: str = "time",
    kernel: str = "sdpa",
    known: Known = None,
    records: Sequence[Record] = (),
    compiled: Callable[[Sequence[Problem], Gpu], dict[Problem, list[dict[str, Any]]]] | None = None,
    budget_s: float = 10.0,
) -> Setting:
    """Rank the candidates on `gpu`, with the measured times of `records` where they have them.

    compiled: makes the Facts of Problems on a GPU. budget_s: the search goes from coarse to fine and leaves out
    what it did not reach. Raises BadInput where no split is left, saying why.
    """
    left_out = list(found.left_out)
    choices: list[Choice] = []
    stop_s = time.monotonic() + budget_s
    for problem in coarse_first(found.problems):
        try:
            one = choice(problem, tensor_parallel)
        except BadInput as error:
            left_out.append((choice(problem).split, str(error)))
            continue
        if gpu is not None and choices and time.monotonic() > stop_s:
            left_out.append((one.split, f"not reached within --budget {budget_s:g}"))
            continue
        if gpu is not None:
            add_predictions(one, gpu, kernel, known)
        choices.append(one)
    add_measurements(choices, records, kernel, gpu)
    for one in choices:
        if one.layer is None and one.reason is None:
            usual = LEAST_HEAD_DIM <= one.problem.head_dim <= MOST_HEAD_DIM
            why = "" if usual else f": head_dims from {LEAST_HEAD_DIM} to {MOST_HEAD_DIM} are"
            one.reason = f"not measured{why}"
    _refuse_none(choices, left_out, gpu, tensor_parallel)
    if objective == "energy" and all(one.energy_joules is None for one in choices):
        raise BadInput("--objective energy: no energy is known here; name a GPU, or a Run of `sweep --energy`")
    if compiled is not None and gpu is not None:
        facts = compiled([one.problem for one in choices if one.reason is None], gpu)
        for one in choices:
            one.compiled = facts.get(one.problem, [])
    rankable = rank(choices, objective)
    choices.sort(key=lambda one: _order(one, objective))
    own = next((one for one in choices if one.split == found.own), None)
    own_left_out = next((f"{split}: {reason}" for split, reason in left_out if split == found.own), None)
    return Setting(
        gpu=gpu.name if gpu else None,
        device=device or (gpu.name if gpu else "cpu"),
        tensor_parallel=tensor_parallel,
        objective=objective,
        kernel=kernel,
        rankable=rankable,
        own=found.own,
        choices=choices,
        left_out=left_out,
        sentences=[
            *([Sentence(text=f"your own split can't be ranked: {own_left_out}")] if own_left_out else []),
            *sentences(choices, own, objective, rankable=rankable),
        ],
        assumed=_assumed(choices, tensor_parallel) + _energy_assumed(choices, objective, gpu),
    )


def _refuse_none(choices: list[Choice], left_out: list[tuple[str, str]], gpu: Gpu | None, tp: int) -> None:
    if not choices:
        more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
        raise BadInput(f"no legal split with --tp {tp}: {left_out[0][1]}{more}")
    if all(one.reason is not None for one in choices):
        where = f" on {gpu.name}" if gpu else ""
        more = f" (and {len(choices) - 1} more)" if len(choices) > 1 else ""
        raise BadInput(f"no split can be ranked{where}: {choices[0].split}: {choices[0].reason}{more}")


def _order(one: Choice, objective: str) -> tuple[Any, ...]:
    value = objective_value(objective)(one)
    usable = one.reason is None and value is not None
    time_us = one.layer.time_us if one.layer else 0.0
    return not usable, one.rank or 0, value if usable else 0.0, time_us, one.split


def _energy_assumed(choices: list[Choice], objective: str, gpu: Gpu | None) -> list[str]:
    """On what energies rest."""
    hows = {one.energy_how for one in choices if one.energy_how} if objective == "energy" else set()
    said = []
    if "predicted" in hows and gpu is not None:
        said.append(
            f"predicted energy is the board's power limit, {gpu.tdp_watts:g} W, over the layer's time: an upper end, "
            "and ranked as the time is"
        )
    if "measured" in hows:
        said.append("measured energy is the GPU's own counter over a window of calls (sweep --energy)")
    return said


def _assumed(choices: list[Choice], tensor_parallel: int) -> list[str]:
    """What the figures leave out, and why the model may not hold for half of the splits or more, each once."""
    predictions = [one.layer.prediction for one in choices if one.layer and one.layer.prediction and one.reason is None]
    often = Counter(reason for one in predictions for reason in dict.fromkeys((*one.outside, *one.unsure)))
    said = [
        reason if count == len(predictions) else f"{reason} ({count} of {len(predictions)} splits)"
        for reason, count in often.items()
        if 2 * count >= len(predictions)
    ]
    if tensor_parallel > 1:
        said.append("communication between the GPUs is not counted")
    return said
