"""A triton.jit kernel of the user's own, compiled by `inspect --module`: what is said of it, and its Facts."""

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from andrea_bench.errors import BadInput

if TYPE_CHECKING:
    from andrea_bench.inspect.facts import Facts
    from andrea_bench.inspect.pipeline import Options
    from andrea_bench.kernel import TritonLaunch


def facts_of_module(module: str, gpus: list[str], options: "Options", given: dict[str, Any]) -> list["Facts"]:
    """Facts of PATH.py:KERNEL on each GPU; given: the options that belong to --module. Raises BadInput."""
    from andrea_bench.inspect import compile_facts
    from andrea_bench.inspect.survey import user_launch
    from andrea_bench.kernel import load_function

    if ".py:" not in module:
        raise BadInput(f"--module {module}: write it as path.py:kernel_name")
    if not given["signature"]:
        raise BadInput("--module needs --signature, the types of the kernel's run-time arguments")
    function = load_function(module)
    asked = {
        "signature": given["signature"], "constexprs": _constants(given["constexprs"]), "grid": _grid(given["grid"]),
        "num_warps": given["num_warps"], "num_stages": given["num_stages"],
        "useful_mma_flops": given["useful_mma_flops"],
    }  # fmt: skip
    facts = [compile_facts(function, gpu=gpu, options=options, **asked) for gpu in gpus]
    for one in facts:
        if one.mma_efficiency is not None and one.mma_efficiency > 1:
            raise BadInput(f"--useful-mma-flops {asked['useful_mma_flops']} is more than the "
                           f"{one.issued_mma_flops:.0f} that are issued on {one.gpu}")  # fmt: skip
    _say_what_is_assumed(user_launch(function, **asked))
    return facts


def _say_what_is_assumed(launch: "TritonLaunch") -> None:
    """Load widths follow from it: a launch with other values is compiled to other code."""
    from andrea_bench.cli.console import note

    yes = ", ".join(launch.divisible_by_16) or "none"
    no = ", ".join(name for name in launch.signature if name not in launch.divisible_by_16) or "none"
    note(f"compiled for arguments that are multiples of 16: {yes}; that need not be: {no} (:16 and :1 in --signature)")


def _constants(texts: Sequence[str]) -> dict[str, Any]:
    """Values of constexprs: Python literals (64, 1.5, True, None, 'text'), else the text itself."""
    found: dict[str, Any] = {}
    for text in (part for given in texts for part in given.split(",")):
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise BadInput(f"--constexpr {text!r}: write it as NAME=VALUE")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def _grid(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 3 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise BadInput(f"--grid {text}: write one to three positive numbers, as in 8,12")
    return tuple(map(int, parts))
