"""Tiles that a search tries in place of a table's row."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Tile = TypeVar("Tile")


class Tried(Generic[Tile]):
    """What a search is trying at the moment; tile None: nothing, so that the table decides."""

    def __init__(self) -> None:
        self.tile: Tile | None = None

    @contextmanager
    def trying(self, tile: Tile) -> Iterator[None]:
        """Within it, `tile` is the one to take."""
        before, self.tile = self.tile, tile
        try:
            yield
        finally:
            self.tile = before
