"""--where expressions: arithmetic and comparisons over a Problem's fields, and nothing else.

Parsed by Python's own grammar into a tree whose nodes are all on a short list; never run as Python.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from andrea_bench.errors import BadInput, unknown_name

MAX_LENGTH = 1000
MAX_NUMBER = 10**18
BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Where:
    """One expression, checked when it is made. Raises BadInput naming the expression and the position."""

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        self._text = text
        self._names = names
        if len(text) > MAX_LENGTH:
            raise BadInput(f"--where: an expression of {len(text)} characters; at most {MAX_LENGTH}")
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError) as error:
            position = getattr(error, "offset", None) or 1
            raise BadInput(f"--where {text!r}: can't be read at position {position}") from None
        self._check(self._tree)

    def __call__(self, fields: Mapping[str, Any]) -> bool:
        """Whether `fields` fit. Raises BadInput on a division by zero or a comparison of unlike things."""
        try:
            return bool(self._value(self._tree, fields))
        except (ZeroDivisionError, TypeError, OverflowError) as error:
            raise BadInput(f"--where {self._text!r}: {error}") from None

    def _check(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            if node.id not in self._names:
                raise BadInput(f"--where {self._text!r}: {unknown_name('name', node.id, self._names)}")
        elif isinstance(node, ast.Constant):
            allowed = isinstance(node.value, bool | str | float) or (
                isinstance(node.value, int) and abs(node.value) <= MAX_NUMBER
            )
            if not allowed:
                raise self._refuse(node, "a value that is no number, true, false or text")
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                self._check(value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            self._check(node.operand)
        elif isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            self._check(node.left)
            self._check(node.right)
        elif isinstance(node, ast.Compare) and all(type(op) in COMPARE for op in node.ops):
            for value in (node.left, *node.comparators):
                self._check(value)
        else:
            raise self._refuse(node, "only numbers, names, + - * / // %, comparisons, and, or, not")

    def _refuse(self, node: ast.expr, why: str) -> BadInput:
        return BadInput(f"--where {self._text!r}: position {node.col_offset + 1} can't be used: {why}")

    def _value(self, node: ast.expr, fields: Mapping[str, Any]) -> Any:
        if isinstance(node, ast.Name):
            return fields[node.id]
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.BoolOp):
            every = isinstance(node.op, ast.And)
            values = (self._value(value, fields) for value in node.values)
            return all(values) if every else any(values)
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand, fields)
            return not value if isinstance(node.op, ast.Not) else -value
        if isinstance(node, ast.BinOp):
            return BINARY[type(node.op)](self._value(node.left, fields), self._value(node.right, fields))
        assert isinstance(node, ast.Compare)
        left = self._value(node.left, fields)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self._value(right_node, fields)
            if not COMPARE[type(op)](left, right):
                return False
            left = right
        return True
