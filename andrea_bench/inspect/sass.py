"""Machine code as nvdisasm prints it in its raw mode: instructions, control flow, and the main loop.

The main loop is found from the control flow: blocks, dominators, natural loops (a back edge whose target
dominates its source). Out-of-line wait loops that jump back into a loop are so told apart from the loop.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_TARGET = re.compile(r"(?:^|[\s,])0x([0-9a-f]+)$")
# Root opcodes that move control; the first group has an address as its last operand.
_JUMPS = ("BRA", "JMP", "CALL")
_ENDS = ("EXIT", "RET", "BRX", "JMX")
TRUE_PREDICATES = ("", "PT", "UPT")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction: address in bytes, guard predicate ("!P2", "" where none), opcode with its
    modifiers ("HMMA.16816.F32.BF16"), operands as printed but for the address that it may jump to, and that."""

    address: int
    predicate: str
    opcode: str
    operands: str
    target: int | None = None

    @property
    def root(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]


@dataclass(frozen=True)
class Code:
    """The machine code of one kernel. other_functions: functions of the binary that it doesn't include. unread: how
    many instructions could not be read. digest: changes exactly when the code does. indirect: it has jumps whose
    targets are not printed, so loops may be missed."""

    instructions: tuple[Instruction, ...]
    other_functions: tuple[str, ...] = ()
    unread: int = 0
    digest: str = ""
    indirect: bool = False
    loops: tuple[frozenset[int], ...] = field(default=(), repr=False)


def parse(text: str, starts: Sequence[int] = (0,)) -> list[list[Instruction]]:
    """The instructions of each kernel, of several that `nvdisasm -b` printed one after the other. starts: where each
    begins, ascending; addresses and targets are counted from there."""
    found: list[list[Instruction]] = [[] for _ in starts]
    kernel, start, end = 0, starts[0], starts[1] if len(starts) > 1 else None
    for line in text.splitlines():
        if (made := _INSTRUCTION.match(line)) is None:
            continue
        address, opcode, operands = int(made[1], 16), made[3], made[4]
        while end is not None and address >= end:
            kernel += 1
            start, end = end, starts[kernel + 1] if kernel + 1 < len(starts) else None
        target = None
        if opcode.partition(".")[0] in _JUMPS and (jump := _TARGET.search(operands)):
            target, operands = int(jump[1], 16) - start, operands[: jump.start()].rstrip(",")
        found[kernel].append(Instruction(address - start, made[2] or "", opcode, operands, target))
    return found


def make_code(instructions: Sequence[Instruction], relocated: frozenset[int] = frozenset(), **known: Any) -> Code:
    """Code with its loops. relocated: addresses of instructions that a loader completes, whose target is not known.
    known: other_functions, unread and digest, where there are any."""
    placed = tuple(replace(i, target=None) if i.address in relocated else i for i in instructions)
    indirect = any(i.root in ("BRX", "JMX") for i in placed)
    return Code(placed, indirect=indirect, loops=tuple(_natural_loops(placed)), **known)


def main_loop(code: Code, is_matrix: Callable[[Instruction], bool]) -> tuple[Instruction, ...] | None:
    """The innermost loop that holds matrix instructions; None where there is no loop.

    Of several the one with the most of them, then the shortest (the one without masks runs most). In a kernel
    without matrix instructions: the innermost loop with the most FMAs, then the longest.
    """

    def fmas(loop: frozenset[int]) -> int:
        return sum(code.instructions[i].root in ("FFMA", "FFMA2", "HFMA2") for i in loop)

    def matrix(loop: frozenset[int]) -> int:
        return sum(is_matrix(code.instructions[i]) for i in loop)

    with_matrix = [loop for loop in code.loops if matrix(loop)]
    candidates = with_matrix or list(code.loops)
    innermost = [a for a in candidates if not any(b < a for b in candidates)]
    if not innermost:
        return None
    if with_matrix:
        chosen = max(innermost, key=lambda loop: (matrix(loop), -len(loop)))
    elif any(is_matrix(i) for i in code.instructions):
        return None
    else:
        chosen = max(innermost, key=lambda loop: (fmas(loop), len(loop)))
    return tuple(code.instructions[i] for i in sorted(chosen))


def _is_conditional(instruction: Instruction) -> bool:
    """Whether the next instruction may follow: a guard, or a condition before the target (`BRA.U !UP0, 0x1230`)."""
    if instruction.predicate not in TRUE_PREDICATES:
        return True
    return instruction.operands not in TRUE_PREDICATES


def _successors(instructions: tuple[Instruction, ...], index: int, at: dict[int, int]) -> list[int]:
    instruction = instructions[index]
    following = [index + 1] if index + 1 < len(instructions) else []
    jump = [at[instruction.target]] if instruction.target in at else []
    if instruction.root in ("BRA", "JMP"):
        return jump + (following if _is_conditional(instruction) or not jump else [])
    if instruction.root == "CALL":  # also used as a far jump
        return jump + following
    if instruction.root in _ENDS and instruction.predicate in TRUE_PREDICATES:
        return []
    return following


def _natural_loops(instructions: tuple[Instruction, ...]) -> Iterable[frozenset[int]]:
    """The natural loops, each as the indices of its instructions; loops of one header are one loop."""
    at = {instruction.address: index for index, instruction in enumerate(instructions)}
    leaders = {0}
    for index, instruction in enumerate(instructions):
        if instruction.root in _JUMPS or instruction.root in _ENDS:
            leaders.add(index + 1)
            if instruction.target in at:
                leaders.add(at[instruction.target])
    starts = sorted(i for i in leaders if i < len(instructions))
    ends = [*starts[1:], len(instructions)]
    block_at = {start: block for block, start in enumerate(starts)}
    after = [[block_at[s] for s in _successors(instructions, end - 1, at)] for end in ends]
    before: list[list[int]] = [[] for _ in starts]
    for block, targets in enumerate(after):
        for target in targets:
            before[target].append(block)
    dominators = _dominators(after, before)
    bodies: dict[int, set[int]] = {}
    for block, targets in enumerate(after):
        for header in targets:
            if dominators[block] >> header & 1:
                bodies.setdefault(header, {header}).update(_body(header, block, before, dominators))
    for blocks in bodies.values():
        yield frozenset(i for block in blocks for i in range(starts[block], ends[block]))


def _body(header: int, tail: int, before: list[list[int]], dominators: list[int]) -> set[int]:
    """The blocks that reach `tail` without passing `header`."""
    body, todo = {header}, [tail]
    while todo:
        block = todo.pop()
        if block not in body and dominators[block]:
            body.add(block)
            todo.extend(before[block])
    return body


def _dominators(after: list[list[int]], before: list[list[int]]) -> list[int]:
    """For each block the set of blocks (bits) that every path from the entry passes; 0: not reachable."""
    reached, todo = {0}, [0]
    while todo:
        for target in after[todo.pop()]:
            if target not in reached:
                reached.add(target)
                todo.append(target)
    everything = (1 << len(after)) - 1
    dominators = [everything if block in reached else 0 for block in range(len(after))]
    dominators[0] = 1
    changed = True
    while changed:
        changed = False
        for block in sorted(reached - {0}):
            common = everything
            for previous in before[block]:
                if previous in reached:
                    common &= dominators[previous]
            common |= 1 << block
            if common != dominators[block]:
                dominators[block] = common
                changed = True
    return dominators
