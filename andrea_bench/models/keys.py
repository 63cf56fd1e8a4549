"""Typed access to a configuration's keys, several names for one thing included."""

from typing import Any

from andrea_bench.errors import BadInput
from andrea_bench.problem import MAX_SIZE

NEEDED = object()


class Keys:
    """The keys of one configuration. within: the outer key that holds it, for messages."""

    def __init__(self, content: dict[str, Any], within: str | None = None) -> None:
        self.content = content
        self.within = within

    def has(self, *names: str) -> bool:
        return any(self.content.get(name) is not None for name in names)

    def found(self, *names: str) -> str:
        """The first of the names that is there."""
        return next((name for name in names if self.content.get(name) is not None), names[0])

    def size(self, *names: str, default: Any = NEEDED) -> Any:
        """The positive integer under any of the names. Raises BadInput where none is there and there is no
        default, where two of them differ, or where it is no size."""
        there = {name: self.content[name] for name in names if self.content.get(name) is not None}
        if not there:
            if default is NEEDED:
                raise BadInput(f"{self._place()}key {' or '.join(names)} is missing")
            return default
        for name, value in there.items():
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_SIZE:
                raise BadInput(f"{self._place()}{name} must be a positive integer, not {value!r}")
        if len(set(there.values())) > 1:
            raise BadInput(f"{self._place()}contradictory keys: {', '.join(f'{k} {v}' for k, v in there.items())}")
        return next(iter(there.values()))

    def flag(self, name: str, default: bool) -> bool:
        value = self.content.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise BadInput(f"{self._place()}{name} must be true or false, not {value!r}")
        return value

    def text(self, name: str) -> str | None:
        value = self.content.get(name)
        if value is not None and not isinstance(value, str):
            raise BadInput(f"{self._place()}{name} must be a text, not {value!r}")
        return value

    def _place(self) -> str:
        return f"{self.within}: " if self.within else ""
