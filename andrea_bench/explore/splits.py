"""Splits: every legal (n_head, n_kv_head, head_dim) of a request, and what of it falls to one GPU of several."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from andrea_bench.axes import AxisRequest, expand
from andrea_bench.errors import BadInput
from andrea_bench.models import DEFAULT_MODEL, find_model
from andrea_bench.problem import MAX_SIZE, Problem
from andrea_bench.where import Where

WIDTHS = ("d_model", "n_head", "n_kv_head", "head_dim")
# What attention kernels are made for, in steps of whole 16-byte rows of 16-bit types; other splits of a model's
# parameters are left out.
LEAST_HEAD_DIM, MOST_HEAD_DIM, HEAD_DIM_STEP = 16, 256, 8


@dataclass
class Candidates:
    """The Problems to set side by side, the split of the user's own among them (None: there is none), and
    what was left out with its reason."""

    problems: list[Problem]
    own: str | None = None
    left_out: list[tuple[str, str]] = field(default_factory=list)


def split_label(problem: Problem) -> str:
    """`12 x 64`, and with fewer KV heads `12:4 x 64`."""
    groups = "" if problem.n_kv_head == problem.n_head else f":{problem.n_kv_head}"
    return f"{problem.n_head}{groups} x {problem.head_dim}"


def candidates(
    request: AxisRequest, *, own: str | None = None, device: str = "cuda", every_kv: bool = False
) -> Candidates:
    """The splits of a request: of a width (--iso), of the axes given, or, where neither is given, of the
    attention parameters of its model.

    own: the user's choice as `12x64` or `12:4x64`; by default the model's head_dim at that width. It joins
    the splits where it isn't among them. device: gives the dtype where none was given. every_kv: each split also
    with every number of KV heads that divides its heads, where the request names none. Raises BadInput where the
    constraints leave no split, or more than one size of anything else than the split.
    """
    given = _legal(request, device)
    found = given if request.iso or set(WIDTHS) & set(request.axes) else _of_same_parameters(given)
    if every_kv and "n_kv_head" not in request.axes:
        found.problems = _with_every_kv(found.problems, request.where)
    _refuse_other_axes(found.problems)
    _refuse_absurd(found.problems[0])
    mine = _own_problem(found.problems[0], own) if own else _model_problem(request, found.problems)
    if mine is not None and (own or mine in found.problems):
        found.own = split_label(mine)
        found.problems += [mine] if mine not in found.problems else []
    return found


def _legal(request: AxisRequest, device: str) -> Candidates:
    """The legal points of the request. Where a filter leaves none, says which one."""
    for text in request.where:
        Where(text)  # a filter that can't be read says so itself
    try:
        expansion = expand(request, device=device)
    except BadInput as error:
        for i, text in enumerate(request.where):
            if _has_points(msgspec.structs.replace(request, where=request.where[:i] + request.where[i + 1 :])):
                raise BadInput(f"no legal split: --where {text!r} leaves none of them") from None
        raise BadInput(f"no legal split: {error}") from None
    left = [(", ".join(f"{name} {value}" for name, value in point.items()), why) for point, why in expansion.invalid]
    return Candidates(expansion.problems, left_out=left)


def _has_points(request: AxisRequest) -> bool:
    try:
        return bool(expand(request).problems)
    except BadInput:
        return False


def _with_every_kv(problems: Iterable[Problem], where: Iterable[str]) -> list[Problem]:
    filters = [Where(text) for text in where]
    found = dict.fromkeys(
        one.replace(n_kv_head=n) for one in problems for n in range(1, one.n_head + 1) if one.n_head % n == 0
    )
    return [one for one in found if all(keeps(one) for keeps in filters)]


def _of_same_parameters(given: Candidates) -> Candidates:
    """All splits with the attention parameters of each Problem given: (n_head + n_kv_head) * head_dim stays."""
    found: dict[Problem, None] = dict.fromkeys(given.problems)
    for problem in given.problems:
        columns = (problem.n_head + problem.n_kv_head) * problem.head_dim
        for head_dim in range(LEAST_HEAD_DIM, MOST_HEAD_DIM + 1, HEAD_DIM_STEP):
            if columns % head_dim:
                continue
            heads = columns // head_dim
            for n_kv_head in (n for n in range(1, heads // 2 + 1) if heads % n == 0):
                found[problem.replace(n_head=heads - n_kv_head, n_kv_head=n_kv_head, head_dim=head_dim)] = None
    return Candidates(list(found), left_out=given.left_out)


def _refuse_other_axes(problems: Iterable[Problem]) -> None:
    """Splits can be ranked only where nothing else differs."""
    for name in Problem.__struct_fields__:
        values = {getattr(problem, name) for problem in problems}
        if name not in WIDTHS and len(values) > 1:
            raise BadInput(
                f"axis {name} has {len(values)} values; splits are ranked at one, as in -a {name}={min(values)}"
            )


def _refuse_absurd(problem: Problem) -> None:
    sizes = {
        "batch x seq_len": problem.batch * problem.seq_len,
        "the columns of W_Q, W_K and W_V": (problem.n_head + 2 * problem.n_kv_head) * problem.head_dim,
    }
    for name, size in sizes.items():
        if size > MAX_SIZE:
            raise BadInput(f"{name}: {size} is larger than {MAX_SIZE}")


def _own_problem(like: Problem, text: str) -> Problem:
    parts = re.fullmatch(r"\s*(\d+)(?::(\d+))?\s*x\s*(\d+)\s*", text)
    if not parts:
        raise BadInput(f"--own {text}: write n_head x head_dim, as in 12x64, or with KV heads 12:4x64")
    n_head, n_kv_head, head_dim = int(parts[1]), int(parts[2] or parts[1]), int(parts[3])
    return like.replace(n_head=n_head, n_kv_head=n_kv_head, head_dim=head_dim)


def _model_problem(request: AxisRequest, problems: list[Problem]) -> Problem | None:
    """The model's own split, or at another width heads as wide as the model's; None where they don't divide."""
    model = find_model(request.model or DEFAULT_MODEL)
    if model.d_model == problems[0].d_model:
        return problems[0].replace(n_head=model.n_head, n_kv_head=model.n_kv_head, head_dim=model.head_dim)
    return next((one for one in problems if one.head_dim == model.head_dim), None)


def of_one_gpu(problem: Problem, tensor_parallel: int) -> Problem:
    """What one of `tensor_parallel` GPUs computes: its heads; d_model, which the input has, stays whole. With
    fewer KV heads than GPUs each is held by several of them. Raises BadInput where heads don't divide."""
    t = tensor_parallel
    if problem.n_head % t:
        raise BadInput(f"n_head {problem.n_head} is not divisible by --tp {t}")
    shares = problem.n_kv_head % t == 0
    if not shares and t % problem.n_kv_head:
        raise BadInput(f"n_kv_head {problem.n_kv_head} neither divides nor is divisible by --tp {t}")
    n_kv_head = problem.n_kv_head // t if shares else 1
    return problem.replace(n_head=problem.n_head // t, n_kv_head=n_kv_head)


def coarse_first(problems: Iterable[Problem]) -> list[Problem]:
    """The order of a search that may end early: head_dims on coarse steps before those between them."""

    def step(problem: Problem) -> tuple[int, int, int]:
        at = next(i for i, s in enumerate((64, 32, 16, 8, 1)) if problem.head_dim % s == 0)
        usual = LEAST_HEAD_DIM <= problem.head_dim <= MOST_HEAD_DIM
        return (0 if usual else 1, at, problem.n_head)

    return sorted(problems, key=step)
