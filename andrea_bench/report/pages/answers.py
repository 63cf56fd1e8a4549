"""Page: answers first. For each Run at most six sentences, then all the others."""

from collections.abc import Iterator

from andrea_bench.report.answers import Sentence, misalignments, where
from andrea_bench.report.content import Heading, MeasuredRun, Page, Part, Said, Subject, Table
from andrea_bench.report.rows import Row

MOST = 6
MOST_OTHERS = 300
# What a reader asks first: (suite, kernel, against).
FIRST = (
    ("projection", "fused_qkv", "per_head_loop"),
    ("alignment", None, None),
    ("layer", "five_steps", "five_steps_per_head"),
    ("attention", "sdpa", "eager"),
    ("layout", "attention_copy_then_contiguous", "attention_strided"),
    ("decode", "triton_decode", "sdpa"),
    ("output", "per_head_sum", "concat_matmul"),
)


def answers_first(subject: Subject) -> Page:
    """At most six sentences a Run, each with its ratio, interval, machine and rows."""
    title = "Answers"
    parts: list[Part] = []
    for run in subject.runs:
        first = list(_first(run))
        if not first:
            continue
        if len(subject.runs) > 1:
            parts.append(Heading(run.label))
        parts += [Said(f"{_sentence(s)}{_doubt(run, s)}", tuple(s.cell_ids)) for s in first]
        rest = [s for s in run.answers if all(s is not one for one in first)]
        if rest:
            cut = f" (the first {MOST_OTHERS} of {len(rest)}; `show --json` has all)"
            more = cut if len(rest) > MOST_OTHERS else ""
            others = [(_sentence(s),) for s in rest[:MOST_OTHERS]]
            parts.append(Table(f"All other answers{more}", ("answer",), others, folded=True))
    if not parts:
        return Page("answers", title, absent="no pair of kernels that a suite compares has times")
    intro = "Measured. A ratio is time over time, paired sample by sample, with its 95 % interval: below 1 is faster."
    return Page("answers", title, [intro, *parts])


def _first(run: MeasuredRun) -> Iterator[Sentence]:
    candidates = [padding_cost(run), *run.answers]
    said = 0
    for suite, kernel, against in FIRST:
        for one in candidates:
            if one and one.suite == suite and (kernel is None or (one.kernel, one.against) == (kernel, against)):
                yield one
                said += 1
                break
        if said == MOST:
            return


def padding_cost(run: MeasuredRun) -> Sentence | None:
    """What the next multiple of 8 beside the best aligned head_dim costs, as 72 beside 64: by the kernel that is
    the fastest at the aligned one."""
    found = [
        m for m in misalignments(run.groups)
        if m.row.record.op == "attention" and m.width == m.base_width + 8 and m.base_width % 16 == 0
    ]  # fmt: skip
    if not found:
        return None
    one = min(found, key=lambda m: m.base.median_us or 0.0)
    record = one.row.record
    change = f"{100 * abs(one.cost - 1):.0f} % {'more' if one.cost >= 1 else 'less'}"
    return Sentence(
        text=f"{where(record.problem, record.device)}: attention at head_dim {one.width} takes {change} time per "
        f"useful FLOP than at {one.base_width} ({one.cost:.2f}, {one.low:.2f} to {one.high:.2f}; {one.kernel}, "
        f"unpaired)",
        suite=record.suite,
        kernel=record.kernel,
        against=record.kernel,
        problem=record.problem,
        ratio=one.cost,
        low=one.low,
        high=one.high,
        cell_ids=[record.cell_id, one.base.record.cell_id],
    )


def _sentence(sentence: Sentence) -> str:
    return f"{sentence.text[:1].upper()}{sentence.text[1:]}."


def _doubt(run: MeasuredRun, sentence: Sentence) -> str:
    """Says so where a sentence rests on times that are in doubt."""
    rows: list[Row] = [row for row in run.rows() if row.record.cell_id in sentence.cell_ids]
    doubts = list(dict.fromkeys(reason for row in rows for reason in row.record.validity.reasons))
    return f" In doubt: {'; '.join(doubts)}." if doubts else ""
