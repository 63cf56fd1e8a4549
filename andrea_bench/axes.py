"""Axes: what the user asks for, and the Problems that follow from it.

`-a n_head=8,12 -a head_dim=64:128:8 -a seq_len=pow2:8:12 --iso d_model=768 --where 'n_head <= 32'`: lists,
inclusive ranges, powers of two, every split of a width, and a filter. What is not given comes from the model.
"""

import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from andrea_bench.errors import BadInput, unknown_name
from andrea_bench.models import DEFAULT_MODEL, find_model
from andrea_bench.problem import DIRECTIONS, DTYPES, MAX_SIZE, SIZES, Problem
from andrea_bench.where import Where

MAX_POINTS = 1_000_000
# More than any size has; keeps absurd texts from becoming numbers.
MAX_DIGITS = 19
AXES = (*SIZES, "dtype", "causal", "direction", "threads")
CONFIG_KEYS = ("model", "iso", "where", "suites", "kernels", "device", "axes")
SHOWN_REASONS = 3
# Names that other tools use for the same types.
DTYPE_ALIASES = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16", "float": "float32"}


class AxisRequest(msgspec.Struct, kw_only=True):
    """What was asked for: a model (preset or path), values by axis, widths to split, filters, thread counts."""

    model: str | None = None
    axes: dict[str, list[Any]] = {}
    iso: dict[str, int] = {}
    where: list[str] = []
    threads: list[int] | None = None


class Expansion(msgspec.Struct):
    """The Problems of a request; and the points of its grid that are none, each with the reason."""

    problems: list[Problem]
    invalid: list[tuple[dict[str, Any], str]]


# ---- syntax -------------------------------------------------------------------------------------------
def parse_axis(text: str) -> tuple[str, list[Any]]:
    """The name and the values of `NAME=VALUES`. Raises BadInput with what is wrong and what would be right."""
    name, equals, values = text.partition("=")
    name = name.strip()
    if not equals:
        raise BadInput(f"axis {text!r}: write it as NAME=VALUES, as in n_head=8,12")
    if name not in AXES:
        raise unknown_name("axis", name, AXES)
    return name, parse_values(name, values)


def parse_values(name: str, text: str) -> list[Any]:
    """The values of one axis, each once, in the order given."""
    parts = [part.strip() for part in text.split(",")]
    if not text.strip() or "" in parts:
        raise BadInput(f"axis {name}={text}: has an empty value")
    values = list(dict.fromkeys(value for part in parts for value in _part(name, part)))
    if len(values) > MAX_POINTS:
        raise BadInput(f"axis {name}: {len(values):,} values; at most {MAX_POINTS:,}")
    if name == "threads" and min(values) < 1:
        raise BadInput(f"threads {min(values)} is not positive; nearest legal value: 1")
    return values


def _part(name: str, part: str) -> Iterable[Any]:
    if name == "dtype":
        return [_dtype(part)]
    if name == "direction":
        if part not in DIRECTIONS:
            raise unknown_name("direction", part, DIRECTIONS)
        return [part]
    if name == "causal":
        if part.lower() not in ("true", "false"):
            raise BadInput(f"axis causal={part}: is neither true nor false")
        return [part.lower() == "true"]
    if part.startswith("pow2:"):
        return _powers_of_two(name, part)
    if ":" in part:
        return _range(name, part)
    return [_whole(name, part)]


def _dtype(text: str) -> str:
    named = DTYPE_ALIASES.get(text, text)
    if named not in DTYPES:
        if named.startswith(("fp8", "float8")):
            raise BadInput(f"dtype {text!r}: fp8 is not measured by this project; known: {', '.join(DTYPES)}")
        raise unknown_name("dtype", text, DTYPES)
    return named


def _whole(name: str, text: str) -> int:
    text = text.strip()
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise BadInput(f"axis {name}: {text[:40]!r} is no whole number, range (64:128:8) or pow2:8:12")
    if len(text) > MAX_DIGITS:
        raise BadInput(f"axis {name}: {text[:40]}... has {len(text)} digits; at most {MAX_DIGITS}")
    return int(text)


def _powers_of_two(name: str, part: str) -> list[int]:
    ends = part.removeprefix("pow2:").split(":")
    if len(ends) != 2:
        raise BadInput(f"axis {name}={part}: write it as pow2:8:12 for 256 to 4096")
    low, high = (_whole(name, end) for end in ends)
    if not 0 <= low <= high <= 62:
        raise BadInput(f"axis {name}={part}: needs exponents from 0 to 62, the lower one first")
    return [2**exponent for exponent in range(low, high + 1)]


def _range(name: str, part: str) -> range:
    ends = part.split(":")
    if len(ends) not in (2, 3):
        raise BadInput(f"axis {name}={part}: write a range as start:stop:step, as in 64:128:8")
    start, stop, step = (_whole(name, end) for end in (*ends, "1")[:3])
    if step < 1:
        raise BadInput(f"axis {name}={part}: the step {step} must be 1 or more")
    if stop < start:
        raise BadInput(f"axis {name}={part}: goes down; write {stop}:{start}:{step}")
    values = range(start, stop + 1, step)
    if len(values) > MAX_POINTS:
        raise BadInput(f"axis {name}={part}: {len(values):,} values; at most {MAX_POINTS:,}")
    return values


# ---- config file ---------------------------------------------------------------------------------------
def read_config(path: Path) -> dict[str, Any]:
    """A TOML file with the keys of CONFIG_KEYS, `[axes]` holding values or axis texts. A byte order mark and
    CRLF are read as if they weren't there. Raises BadInput naming the file, and for unknown keys the closest."""
    try:
        text = path.read_bytes().decode().removeprefix("\ufeff")
    except OSError as error:
        raise BadInput(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not UTF-8 (byte {error.start})") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: is no TOML: {error}") from None
    for key in content:
        if key not in CONFIG_KEYS:
            raise BadInput(f"{path}: {unknown_name('key', key, CONFIG_KEYS)}")
    axes = content.get("axes", {})
    if not isinstance(axes, dict):
        raise BadInput(f"{path}: axes must be a table, as in [axes]")
    content["axes"] = {name: _config_values(path, name, value) for name, value in axes.items()}
    for key, value in content.items():
        if key in ("where", "suites", "kernels"):
            content[key] = value = [value] if isinstance(value, str) else value
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                raise BadInput(f"{path}: {key} must be a list of texts")
        elif key in ("model", "device") and not isinstance(value, str):
            raise BadInput(f"{path}: {key} must be a text, not {value!r}")
    iso = content.get("iso", {"d_model": 1})
    if not isinstance(iso, dict) or list(iso) != ["d_model"] or type(iso["d_model"]) is not int:
        raise BadInput(f"{path}: iso must be one width, as in iso = {{d_model = 768}}")
    return content


def _config_values(path: Path, name: str, value: Any) -> list[Any]:
    if name not in AXES:
        raise BadInput(f"{path}: {unknown_name('axis', name, AXES)}")
    texts = value if isinstance(value, list) else [value]
    plain = [str(one).lower() if isinstance(one, bool) else str(one) for one in texts]
    try:
        return parse_values(name, ",".join(plain))
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


# ---- expansion -----------------------------------------------------------------------------------------
def expand(request: AxisRequest, *, defaults: Mapping[str, list[Any]] | None = None, device: str = "cpu") -> Expansion:
    """All Problems of a request, each once.

    defaults: a suite's own, below what the user gave and above the model's. Raises BadInput for more than a
    million points, and where no point is legal (with the first reason).
    """
    axes = {**(defaults or {}), **{name: values for name, values in request.axes.items() if name != "threads"}}
    for name, values in axes.items():
        if name not in AXES:
            raise unknown_name("axis", name, AXES)
        if not values:
            raise BadInput(f"axis {name} is empty; write {name}=VALUES")
        axes[name] = list(dict.fromkeys(values))
    base = _base(request, device)
    splits = _splits(request, axes)
    count = math.prod(len(values) for values in axes.values()) * max(1, len(splits))
    if count > MAX_POINTS:
        raise BadInput(f"{count:,} points; at most {MAX_POINTS:,}: narrow an axis")
    filters = [Where(text) for text in request.where]
    problems: list[Problem] = []
    invalid = []
    for given in _points(axes, splits):
        complete = _complete(given, base)
        try:
            problem = Problem(**complete)
        except BadInput as error:
            if _may_stay(complete, filters):
                invalid.append((given, str(error)))
            continue
        if not filters or all(keep(problem) for keep in filters):
            problems.append(problem)
    if not problems:
        if invalid:
            reasons = list(dict.fromkeys(reason for _, reason in invalid))
            more = f" (and {len(reasons) - SHOWN_REASONS} more)" if len(reasons) > SHOWN_REASONS else ""
            raise BadInput(" / ".join(reasons[:SHOWN_REASONS]) + more)
        raise BadInput(f"no point of the grid fits --where {' and '.join(request.where)}")
    return Expansion(problems, invalid)


def _may_stay(complete: dict[str, Any], filters: list[Where]) -> bool:
    """Whether a point that is no Problem would be kept, as far as its known fields tell: `--where
    'd_model % n_head == 0'` leaves such points out without a word."""
    fields = SimpleNamespace(**{name: value for name, value in complete.items() if value is not None})
    for keep in filters:
        try:
            if not keep(fields):
                return False
        except (AttributeError, BadInput):
            # It names a field that this point doesn't have, or divides by its zero.
            continue
    return True


def _base(request: AxisRequest, device: str) -> dict[str, Any]:
    """What holds where nothing was given: the model's sizes, and the device's dtype."""
    dtype = "bfloat16" if device.startswith("cuda") else "float32"
    base = msgspec.structs.asdict(find_model(request.model or DEFAULT_MODEL).problem(dtype=dtype))
    del base["kv_len"]
    return base


def _splits(request: AxisRequest, axes: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Every legal (n_head, head_dim) of the width of --iso."""
    if not request.iso:
        return []
    for name in ("d_model", "n_head", "head_dim"):
        if name in axes:
            raise BadInput(f"--iso d_model already says {name}; leave one of the two away (or use --where)")
    (d_model,) = request.iso.values()
    if not 1 <= d_model <= MAX_SIZE:
        raise BadInput(f"--iso d_model={d_model}: must lie in 1 to {MAX_SIZE}")
    small = [d for d in range(1, math.isqrt(d_model) + 1) if d_model % d == 0]
    divisors = sorted({d for one in small for d in (one, d_model // one)})
    return [{"d_model": d_model, "n_head": n, "head_dim": d_model // n} for n in divisors]


def _points(axes: Mapping[str, list[Any]], splits: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    names = list(axes)
    for values in itertools.product(*axes.values()):
        point = dict(zip(names, values, strict=True))
        if splits:
            yield from ({**split, **point} for split in splits)
        else:
            yield point


def _complete(given: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """A point with all that was not given. "Given" means by the user (or the suite):

    n_head and head_dim without d_model: d_model is their product. n_head alone: head_dim is d_model / n_head.
    d_model (with or without n_head's absence): head_dim stays and n_head is the quotient. head_dim alone:
    n_head and d_model stay the model's. Of n_kv_head, the model's grouping stays where n_head was not given.
    """
    complete = {**base, **given}
    heads, width, dim = "n_head" in given, "d_model" in given, "head_dim" in given
    if heads and dim and not width:
        complete["d_model"] = None
    elif heads and not dim:
        complete["head_dim"] = None
    elif width and not heads:
        complete["n_head"] = None
    if "n_kv_head" not in given and complete["n_head"] != base["n_head"]:
        complete["n_kv_head"] = _same_grouping(base, complete)
    return complete


def _same_grouping(base: Mapping[str, Any], complete: Mapping[str, Any]) -> int | None:
    """The model's number of KV heads where other head counts can still share them; MHA stays MHA."""
    if base["n_kv_head"] == base["n_head"]:
        return None
    n_head = complete["n_head"]
    if n_head is None and complete["head_dim"]:
        n_head = complete["d_model"] // complete["head_dim"]
    return base["n_kv_head"] if n_head and n_head % base["n_kv_head"] == 0 else None
