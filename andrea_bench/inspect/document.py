"""Facts as they are written and read: `inspect --json`, `--save` and `--check`."""

import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from andrea_bench.errors import BadInput
from andrea_bench.inspect.facts import SCHEMA_VERSION, Facts


class FactsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Facts, and the versions of the compilers that made them."""

    schema_version: int = SCHEMA_VERSION
    compilers: dict[str, str | None]
    facts: list[Facts]

    def document(self) -> dict[str, Any]:
        """As it is written."""
        return {
            "schema_version": self.schema_version,
            "compilers": self.compilers,
            "facts": [one.document() for one in self.facts],
        }


def write_facts(path: Path, document: FactsDocument) -> None:
    """Writes strict JSON; the file is there whole or not at all. Raises OSError."""
    text = msgspec.json.format(msgspec.json.encode(document.document()), indent=1) + b"\n"
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        # mkstemp lets only the owner read; a file made in the ordinary way follows the umask.
        os.umask(mask := os.umask(0))
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_facts(path: Path) -> FactsDocument:
    """Raises BadInput, naming the file, for what is missing, no JSON, no Facts, or of a newer schema."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: can't be read: {error.strerror}") from error
    try:
        version = msgspec.json.decode(content, type=dict[str, Any]).get("schema_version")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: no Facts file: {error}") from error
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise BadInput(f"{path}: written by a newer andrea-bench (schema {version}, this one reads {SCHEMA_VERSION})")
    try:
        return msgspec.json.decode(content, type=FactsDocument)
    except (msgspec.DecodeError, BadInput) as error:
        raise BadInput(f"{path}: no Facts file: {error}") from error
