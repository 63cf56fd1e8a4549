"""Readings of a machine's counters: a value under a name with its unit, or None beside `<name>_reason`."""

from collections.abc import Callable
from typing import Any

Readings = dict[str, Any]


class Absent(Exception):
    """What can't be read; the text is the reason in words. `code` is NVML's return code, where it has one."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


def put(readings: Readings, name: str, read: Callable[[], Any]) -> None:
    """What `read` gives under that name; None and the reason where it is Absent."""
    try:
        readings[name] = read()
    except Absent as error:
        readings[name] = None
        readings[f"{name}_reason"] = str(error)


def positive(value: Any) -> Any:
    """The value, where 0 can't be true (clocks, limits, power, memory of a working card). Raises Absent."""
    if not value:
        raise Absent("the driver says 0")
    return value
