"""The expressions of --where: a small typed language over a Problem's fields, never evaluated by Python.

Python's parser reads the text; only the nodes named here are taken, each as a closure over a Problem.
A value is a number, a text or a flag, known before anything runs, so `n_head == 8 or 12` and `dtype < 3` are
refused, not misread. There is no power and the text is short, so no number grows large.
"""

import ast
import operator
from collections.abc import Callable
from typing import Any, Literal

from andrea_bench.errors import BadInput, unknown_name
from andrea_bench.problem import SIZES, Problem

MAX_LENGTH = 500
MAX_DEPTH = 50
Kind = Literal["number", "text", "flag"]
Value = Callable[[Any], Any]
KINDS: dict[str, Kind] = {name: "number" if name in SIZES else "text" for name in Problem.__struct_fields__} | {
    "causal": "flag"
}
FLAGS = {"true": True, "false": False, "True": True, "False": False}
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
ALLOWED = "numbers, fields of a Problem, + - * / // %, comparisons, and, or, not, parentheses"


class Where:
    """One --where expression, checked when it is made; call it with a Problem.

    Raises BadInput where the text is wrong (with its position) or, when called, divides by zero;
    AttributeError where what it is called with lacks a field that it names.
    """

    def __init__(self, text: str) -> None:
        self.text = text = text.strip()
        if len(text) > MAX_LENGTH:
            raise BadInput(f"--where expression of {len(text)} characters is longer than {MAX_LENGTH}")
        try:
            tree = ast.parse(text, mode="eval")
        except SyntaxError as error:
            raise self._wrong(f"can't be read: {error.msg}", (error.offset or 1) - 1) from None
        except (ValueError, RecursionError, MemoryError):
            raise BadInput(f"--where {text!r}: is no expression; it may hold {ALLOWED}") from None
        self._holds = self._condition(tree.body, 0)

    def __call__(self, fields: Any) -> bool:
        try:
            return bool(self._holds(fields))
        except ArithmeticError as error:
            named = [name for name in KINDS if name in self.text and hasattr(fields, name)]
            point = ", ".join(f"{name}={getattr(fields, name)}" for name in named)
            raise BadInput(f"--where {self.text!r}: {error} at {point}") from None

    def _wrong(self, reason: str, offset: int) -> BadInput:
        return BadInput(f"--where {self.text!r}, position {offset + 1}: {reason}")

    def _at(self, node: ast.expr, reason: str) -> BadInput:
        return self._wrong(reason, node.col_offset)

    def _condition(self, node: ast.expr, depth: int) -> Value:
        """Something that is true or false: a comparison, a flag, or these joined."""
        self._check_depth(node, depth)
        if isinstance(node, ast.BoolOp):
            parts = [self._condition(value, depth + 1) for value in node.values]
            joined = all if isinstance(node.op, ast.And) else any
            return lambda fields: joined(part(fields) for part in parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._condition(node.operand, depth + 1)
            return lambda fields: not inner(fields)
        if isinstance(node, ast.Compare):
            return self._comparison(node, depth)
        value, kind = self._value(node, depth)
        if kind != "flag":
            raise self._at(node, f"{ast.unparse(node)!r} is a {kind}, not a condition; compare it, as in n_head == 8")
        return value

    def _comparison(self, node: ast.Compare, depth: int) -> Value:
        operands = [self._value(one, depth + 1) for one in (node.left, *node.comparators)]
        steps = []
        for index, symbol in enumerate(node.ops):
            (left, left_kind), (right, right_kind) = operands[index : index + 2]
            compare = COMPARISONS.get(type(symbol))
            if compare is None:
                raise self._at(node, f"is, in and not in are not known here; it may hold {ALLOWED}")
            if left_kind != right_kind:
                raise self._at(node, f"compares a {left_kind} with a {right_kind}")
            if left_kind != "number" and not isinstance(symbol, ast.Eq | ast.NotEq):
                raise self._at(node, f"a {left_kind} has no order; use == or !=")
            steps.append((left, compare, right))
        if len(steps) == 1:
            ((left, compare, right),) = steps
            return lambda fields: compare(left(fields), right(fields))
        return lambda fields: all(compare(left(fields), right(fields)) for left, compare, right in steps)

    def _value(self, node: ast.expr, depth: int) -> tuple[Value, Kind]:
        """A number, text or flag, and which of these it is."""
        self._check_depth(node, depth)
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Constant):
            constant = node.value
            for kind, types in (("flag", bool), ("number", int | float), ("text", str)):
                if isinstance(constant, types):
                    return (lambda fields: constant), kind  # type: ignore[return-value]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inner = self._number(node.operand, depth + 1)
            return (inner if isinstance(node.op, ast.UAdd) else lambda fields: -inner(fields)), "number"
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            compute = ARITHMETIC[type(node.op)]
            left, right = self._number(node.left, depth + 1), self._number(node.right, depth + 1)
            return (lambda fields: compute(left(fields), right(fields))), "number"
        raise self._at(node, f"{ast.unparse(node)!r} is not known here; it may hold {ALLOWED}")

    def _number(self, node: ast.expr, depth: int) -> Value:
        value, kind = self._value(node, depth)
        if kind != "number":
            raise self._at(node, f"{ast.unparse(node)!r} is a {kind}, not a number")
        return value

    def _name(self, node: ast.Name) -> tuple[Value, Kind]:
        name = node.id
        if name in FLAGS:
            flag = FLAGS[name]
            return (lambda fields: flag), "flag"
        if name not in KINDS:
            raise self._at(node, str(unknown_name("name", name, KINDS)))
        return operator.attrgetter(name), KINDS[name]

    def _check_depth(self, node: ast.expr, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._at(node, f"is nested deeper than {MAX_DEPTH}")
