"""Machine code of binaries, by nvdisasm: of many binaries at once, as starting it takes longer than reading a kernel.

nvdisasm reads one file a call. In its raw mode that is bare instructions, so that those of many kernels can stand one
after the other. What a binary tells beside them (names, relocations) is read here, from its ELF sections.
"""

import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from struct import iter_unpack, unpack_from
from typing import NamedTuple

from andrea_bench.errors import EnvironmentUnfit
from andrea_bench.inspect import sass, toolchain

INSTRUCTION_BYTES = 16  # since compute capability 7.0
# From this target on Triton compiles for it alone (sm_90a), features of its own included.
_FIRST_WITH_OWN_FEATURES = 90
_TEXT = ".text."
_RELOCATIONS = {4: "<QQq", 9: "<QQ"}  # section types RELA and REL: offset, info (and addend)


class _Section(NamedTuple):
    """A section header of ELF64, in the order of its fields; name is an offset into the table of names."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


@dataclass(frozen=True)
class Section:
    """The instructions of one function of a binary. relocated: offsets of those that a loader completes."""

    content: bytes
    relocated: frozenset[int]


def code_sections(binary: bytes) -> dict[str, Section]:
    """The code of a binary (cubin), by function. Raises ValueError where it is no ELF64 file."""
    if binary[:5] != b"\x7fELF\x02":
        raise ValueError("the binary is no ELF64 file")
    (start,) = unpack_from("<Q", binary, 0x28)
    size, count, names_at = unpack_from("<HHH", binary, 0x3A)
    headers = [_Section(*unpack_from("<IIQQQQIIQQ", binary, start + i * size)) for i in range(count)]
    relocated: dict[int, set[int]] = {}
    for header in headers:
        if form := _RELOCATIONS.get(header.kind):
            entries = iter_unpack(form, binary[header.offset : header.offset + header.size])
            relocated.setdefault(header.info, set()).update(entry[0] for entry in entries)
    found = {}
    for index, header in enumerate(headers):
        at = headers[names_at].offset + header.name
        name = binary[at : binary.index(b"\0", at)].decode()
        if name.startswith(_TEXT):
            content = binary[header.offset : header.offset + header.size]
            found[name.removeprefix(_TEXT)] = Section(content, frozenset(relocated.get(index, ())))
    return found


def disassemble(target: int, kernels: Sequence[tuple[str, bytes]]) -> list[sass.Code]:
    """The code of each kernel, (its name, its binary), all compiled for one target (89 for sm_89), by one call.

    Raises ValueError where a binary lacks its kernel, EnvironmentUnfit where nvdisasm fails."""
    sections: list[Section] = []
    others: list[list[str]] = []
    for name, binary in kernels:
        functions = code_sections(binary)
        if name not in functions:
            raise ValueError(f"the binary holds no code of {name}")
        sections.append(functions.pop(name))
        others.append(list(functions))
    architecture = f"SM{target}{'a' if target >= _FIRST_WITH_OWN_FEATURES else ''}"
    printed = _nvdisasm(b"".join(section.content for section in sections), "-b", architecture)
    starts = [0, *accumulate(len(section.content) for section in sections[:-1])]
    return [
        sass.make_code(
            instructions,
            section.relocated,
            other_functions=tuple(names),
            unread=len(section.content) // INSTRUCTION_BYTES - len(instructions),
            # Of the instructions alone: the binary around them also holds paths and line numbers.
            digest=hashlib.blake2b(section.content, digest_size=8).hexdigest(),
        )
        for instructions, names, section in zip(sass.parse(printed, starts), others, sections, strict=True)
    ]


def listing(binary: bytes) -> str:
    """A binary as nvdisasm prints it to be read, with names and labels. Raises EnvironmentUnfit where it fails."""
    return _nvdisasm(binary, "-c")


def _nvdisasm(content: bytes, *options: str) -> str:
    with tempfile.NamedTemporaryFile(prefix="andrea_bench_") as file:
        file.write(content)
        file.flush()
        # No dataflow analysis: it costs a third of the time and is not needed.
        command = [str(toolchain.disassembler()), *options, "-ndf", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise EnvironmentUnfit(f"nvdisasm failed: {said[-1].strip() if said else done.returncode}")
    return done.stdout
