"""A Run on disk: a folder with run.json and records.jsonl.

Written so that a kill, a full disk or a second writer loses nothing that was finished; read so that
whatever can't be read is named by file and line. Reading for tables of many records is report's, by polars.
"""

import codecs
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from andrea_bench.errors import BadInput
from andrea_bench.files import make_folder, write_whole
from andrea_bench.record import SCHEMA_VERSION, Record, RunHead

HEAD = "run.json"
RECORDS = "records.jsonl"
LOCK = ".lock"
CUT = "records.cut"
TABLES = ("cpu", "gpu", "libraries", "variables", "git")  # of a Run's environment
T = TypeVar("T", Record, RunHead)


@dataclass
class StoredRun:
    """A Run as read from disk."""

    folder: Path
    head: RunHead
    records: list[Record]


def read_run(path: str | Path) -> StoredRun:
    """Read a whole Run. Raises BadInput with file and line for what can't be read or is of a newer schema."""
    folder = run_folder(path)
    return StoredRun(folder, read_head(folder), list(read_records(folder)))


def read_whole_run(path: str | Path) -> StoredRun:
    """As `read_run`; but raises BadInput, too, of a Run that calls itself complete and lost its records: that says
    nothing of any cell, and is no regression in all of them."""
    run = read_run(path)
    if run.head.complete and not run.records:
        raise BadInput(f"{run.folder}: run.json calls the Run complete, but records.jsonl holds no records")
    return run


def run_folder(path: str | Path) -> Path:
    """The folder of a Run, given it or a file in it. Raises BadInput where there is no Run."""
    folder = Path(path)
    if folder.name in (HEAD, RECORDS):
        folder = folder.parent
    if not folder.exists():
        raise BadInput(f"{path}: there is no such Run (a folder that `sweep` wrote)")
    if not (folder / HEAD).is_file():
        raise BadInput(f"{folder}: is no Run: it has no {HEAD}")
    return folder


def read_head(folder: Path) -> RunHead:
    """run.json of a Run's folder."""
    file = folder / HEAD
    content = _read_text(file)
    if not content.strip():
        raise BadInput(f"{file}: is empty; it can't be read")
    head = _decode(content, RunHead, str(file))
    for name in TABLES:
        if not isinstance(head.environment.get(name) or {}, dict):
            raise BadInput(f"{file}: environment.{name} is no object")
    return head


def read_records(folder: Path) -> Iterator[Record]:
    """The records of a Run, one by one; a Run that has stored none yet has no file."""
    file = folder / RECORDS
    if not file.exists():
        return
    seen: dict[tuple[str, str, str | None, str | None], int] = {}
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if not line.strip():
                continue
            record = decode_record(line, file, number)
            if record.key() in seen:
                raise BadInput(f"{file}, line {number}: has the same cell as line {seen[record.key()]}")
            seen[record.key()] = number
            yield record


def decode_record(line: bytes, file: Path, number: int) -> Record:
    """The Record in line `number` of `file`. Raises BadInput naming both for what can't be read."""
    where = f"{file}, line {number}"
    if not line.endswith(b"\n"):
        raise BadInput(
            f"{where}: is cut off; `andrea-bench sweep --resume {file.parent}` sets it aside "
            f"and measures its group again, or delete that line"
        )
    record = _decode(_utf8(line, where), Record, where)
    for name in ("order", "block", "round"):
        if len(getattr(record, name)) not in (0, len(record.samples_us)):
            raise BadInput(f"{where}: {len(record.samples_us)} samples, but {name} has {len(getattr(record, name))}")
    return record


def _read_text(file: Path) -> str:
    return _utf8(file.read_bytes(), str(file)).removeprefix("\ufeff")


def _utf8(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        if content.startswith(b"\x1f\x8b"):
            raise BadInput(f"{where}: is compressed by gzip; gunzip it") from None
        raise BadInput(f"{where}: is not UTF-8 (byte {error.start})") from None


def _decode(text: str, kind: type[T], where: str) -> T:
    try:
        return _known_schema(msgspec.json.decode(text, type=kind), where)
    except msgspec.DecodeError as error:
        return _decode_leniently(text, kind, where, error)
    except RecursionError:
        raise BadInput(f"{where}: is nested too deeply to be a Run") from None


def _decode_leniently(text: str, kind: type[T], where: str, error: Exception) -> T:
    """Reads what other writers leave (NaN, Infinity), and says precisely what can't be read."""
    try:
        document = json.loads(text)
    except ValueError:
        raise BadInput(f"{where}: is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise BadInput(f"{where}: is a JSON {type(document).__name__}, not an object")
    version = document.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise BadInput(
            f"{where}: has schema_version {version!r}; this andrea-bench reads up to {SCHEMA_VERSION}: update it"
        )
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as invalid:
        raise BadInput(f"{where}: {invalid}") from None


def _known_schema(document: T, where: str) -> T:
    if document.schema_version > SCHEMA_VERSION:
        raise BadInput(
            f"{where}: has schema_version {document.schema_version}; this andrea-bench reads up to "
            f"{SCHEMA_VERSION}: update it"
        )
    return document


def _plain(value: Any) -> Any:
    """A scalar of numpy or torch as a number of Python's."""
    if callable(item := getattr(value, "item", None)):
        return item()
    raise NotImplementedError(f"a Record holds a {type(value).__name__}")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


class RunWriter:
    """The one writer of a Run's folder, which it locks. A context manager; closing it leaves a usable Run."""

    def __init__(self, folder: Path, head: RunHead) -> None:
        self.folder = folder
        self.head = head
        self._lock = _lock(folder)

    @classmethod
    def create(cls, folder: Path, head: RunHead) -> "RunWriter":
        """Start a Run in a new or empty folder. Raises BadInput where it holds a Run or can't be written."""
        make_folder(folder)
        writer = cls(folder, head)
        if (folder / HEAD).exists() or (folder / RECORDS).exists():
            writer.close()
            raise BadInput(f"{folder}: already holds a Run; continue it with --resume {folder}, or name another")
        try:
            writer.save_head()
        except BadInput:
            writer.close()
            raise
        return writer

    @classmethod
    def resume(cls, folder: Path) -> "RunWriter":
        """Continue the Run in `folder`; a last line that was cut off is set aside in records.cut."""
        folder = run_folder(folder)
        writer = cls(folder, read_head(folder))
        _set_cut_line_aside(folder)
        return writer

    def save_head(self) -> None:
        write_whole(self.folder / HEAD, msgspec.json.format(msgspec.json.encode(self.head), indent=1) + b"\n")

    def append(self, records: Iterable[Record]) -> None:
        """Append a Group's records and sync them; all of them or, where the disk is full, none."""
        file = self.folder / RECORDS
        content = b"".join(_ENCODER.encode(record) + b"\n" for record in records)
        try:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise BadInput(f"{file}: can't be opened: {error.strerror}") from error
        try:
            before = os.fstat(handle).st_size
            try:
                _write_all(handle, content)
            except BaseException:
                # Cut short, be it by a full disk or by Ctrl-C: no part of a Group stays.
                os.ftruncate(handle, before)
                raise
            os.fsync(handle)
        except OSError as error:
            raise BadInput(f"{file}: can't be written: {error.strerror}; the records before are kept") from error
        finally:
            os.close(handle)

    def keep_only(self, records: list[Record]) -> None:
        """Rewrite the records as `records` (the whole groups of a Run that was cut off within one)."""
        write_whole(self.folder / RECORDS, b"".join(_ENCODER.encode(r) + b"\n" for r in records))

    def discard(self) -> None:
        """Remove the Run, and its folder where nothing else lies in it."""
        for name in (HEAD, RECORDS, LOCK):
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def close(self) -> None:
        os.close(self._lock)

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _write_all(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]


def _lock(folder: Path) -> int:
    """An exclusive lock on the folder that ends with the process. Raises BadInput where another holds it."""
    try:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise BadInput(f"{folder}: can't be written: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise BadInput(f"{folder}: another sweep writes there; name another folder with --out") from None
    return handle


def _set_cut_line_aside(folder: Path) -> None:
    file = folder / RECORDS
    if not file.exists():
        return
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        write_whole(folder / CUT, content[len(whole) :])
        write_whole(file, whole)
