"""Machine code as nvdisasm prints it: instructions, control flow, and the main loop.

The main loop is found from the control flow: blocks, dominators, natural loops (a back edge whose target
dominates its source). Out-of-line wait loops that jump back into a loop are so told apart from the loop.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_LABEL = re.compile(r"^([.$]\S+):\s*$")
_TARGET = re.compile(r"`\(([^)]+)\)")
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+?),")
# Root opcodes that move control; the first group has a label among its operands.
_JUMPS = ("BRA", "JMP", "CALL")
_ENDS = ("EXIT", "RET", "BRX", "JMX")
TRUE_PREDICATES = ("", "PT", "UPT")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction: address in bytes, guard predicate ("!P2", "" where none), opcode with its
    modifiers ("HMMA.16816.F32.BF16"), operands as printed, and the address that it may jump to."""

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
    """The machine code of one kernel. other_functions: functions of the binary that it doesn't include.
    indirect: it has jumps whose targets are not printed, so loops may be missed."""

    instructions: tuple[Instruction, ...]
    other_functions: tuple[str, ...] = ()
    indirect: bool = False
    loops: tuple[frozenset[int], ...] = field(default=(), repr=False)


def parse(text: str, kernel: str) -> Code:
    """The code of `kernel` from what `nvdisasm -c` printed. Raises ValueError where it is not in there."""
    lines, others = _sections(text, kernel)
    found: list[tuple[int, str, str, str]] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []
    for line in lines:
        if label := _LABEL.match(line):
            waiting.append(label[1])
        elif made := _INSTRUCTION.match(line):
            address = int(made[1], 16)
            labels.update((name, address) for name in waiting)
            waiting = []
            found.append((address, made[2] or "", made[3], made[4]))
    if not found:
        raise ValueError(f"the disassembly holds no instruction of {kernel}")
    instructions = tuple(
        Instruction(address, predicate, opcode, operands, _jump_target(opcode, operands, labels))
        for address, predicate, opcode, operands in found
    )
    indirect = any(i.root in ("BRX", "JMX") for i in instructions)
    return Code(instructions, tuple(others), indirect, tuple(_natural_loops(instructions)))


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


def _sections(text: str, kernel: str) -> tuple[list[str], list[str]]:
    """The lines of the kernel's section, and the names of the other code sections."""
    current: str | None = None
    lines: list[str] = []
    others: list[str] = []
    for line in text.splitlines():
        if section := _SECTION.match(line):
            current = section[1]
            if current != kernel:
                others.append(current)
        elif current == kernel:
            lines.append(line)
    return lines, others


def _jump_target(opcode: str, operands: str, labels: dict[str, int]) -> int | None:
    if opcode.partition(".")[0] not in _JUMPS:
        return None
    label = _TARGET.search(operands)
    return labels.get(label[1]) if label else None


def _is_conditional(instruction: Instruction) -> bool:
    """Whether the next instruction may follow: a guard, or a condition before the label (`BRA.U !UP0, ...`)."""
    if instruction.predicate not in TRUE_PREDICATES:
        return True
    condition = instruction.operands.partition("`")[0].strip(" ,")
    return condition not in TRUE_PREDICATES


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
