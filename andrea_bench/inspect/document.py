"""Facts as they are written and read: `inspect --json`, `--save` and `--check`."""

import codecs
from pathlib import Path
from typing import Any

import msgspec

from andrea_bench.errors import BadInput
from andrea_bench.files import write_whole
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
    """Writes strict JSON; the file is there whole or not at all. Raises BadInput.

    An entry of a file that is renewed stays as it is where only the time that compiling took, or whether the result
    had been kept, is another: so a baseline under version control changes where the code did, and nowhere else.
    """
    document = msgspec.structs.replace(document, facts=_where_changed(path, document.facts))
    text = msgspec.json.format(msgspec.json.encode(document.document()), indent=1) + b"\n"
    write_whole(path, text)


def _where_changed(path: Path, facts: list[Facts]) -> list[Facts]:
    """`facts`, those that `path` already holds as they stand there."""
    try:
        held = read_facts(path).facts
    except BadInput:  # there is none, or something else, which is replaced
        return facts
    known = {(one.kernel, one.gpu, one.problem, one.direction): one for one in held}
    found = [(known.get((one.kernel, one.gpu, one.problem, one.direction)), one) for one in facts]
    return [old if old is not None and old.same_code(one) else one for old, one in found]


def read_facts(path: Path) -> FactsDocument:
    """Raises BadInput, naming the file, for what is missing, no JSON, no Facts, or of a newer schema."""
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
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
