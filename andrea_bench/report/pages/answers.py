"""Page: answers first. For each Run at most six sentences, then all the others."""

from collections import Counter
from collections.abc import Iterator

from andrea_bench.report.answers import Sentence, padding_cost
from andrea_bench.report.content import MeasuredRun, Page, Part, Said, Subject, Table
from andrea_bench.report.pages.marks import by_run

MOST = 6
MOST_OTHERS = 300
# What a reader asks first: (suite, kernel, against, the question). Yes is where `kernel` is the faster one.
FIRST = (
    ("projection", "fused_qkv", "per_head_loop", "Fuse the projections of Q, K and V?"),
    ("alignment", None, None, "What does the width cost?"),
    ("layer", "five_steps", "five_steps_per_head", "Does fusing show in the whole layer?"),
    ("attention", "sdpa", "eager", "Use torch's fused attention?"),
    ("layout", "attention_copy_then_contiguous", "attention_strided", "Copy the heads contiguous first?"),
    ("decode", "triton_decode", "sdpa", "Decode with the Triton kernel?"),
    ("output", "per_head_sum", "concat_matmul", "Multiply head by head, without concatenating?"),
)


def answers_first(subject: Subject) -> Page:
    """At most six sentences a Run, each with its ratio, interval, machine and rows."""
    title = "Answers"
    parts = by_run(subject, _of_run)
    if not parts:
        return Page("answers", title, absent="no pair of kernels that a suite compares has times")
    intro = "Measured. A ratio is time over time, paired sample by sample, with its 95 % interval: below 1 is faster."
    return Page("answers", title, [intro, *parts])


def _of_run(run: MeasuredRun, number: int) -> list[Part]:
    first = list(_first(run))
    parts: list[Part] = [
        Said(f"{_sentence(s)}{others}{_doubt(s)}", tuple(s.cell_ids), question) for question, s, others in first
    ]
    rest = [s for s in run.answers if all(s is not one for _, one, _ in first)]
    if rest:
        cut = f" (the first {MOST_OTHERS} of {len(rest)}; `show --json` has all)"
        more = cut if len(rest) > MOST_OTHERS else ""
        others = [(f"{_sentence(s)}{_doubt(s)}",) for s in rest[:MOST_OTHERS]]
        parts.append(Table(f"All other answers{more}", ("answer",), others, folded=True))
    return parts


def _first(run: MeasuredRun) -> Iterator[tuple[str, Sentence, str]]:
    """What is asked first, with its answer, and how the answers of other settings count."""
    said = 0
    for suite, kernel, against, question in FIRST:
        if kernel is None:
            cost = padding_cost(run.groups)
            of_suite = [s for s in run.answers if s.suite == suite]
            found = [s for s in of_suite if cost and s.cell_ids == cost.cell_ids] or of_suite[:1]
            asked = f"What does head_dim {cost.problem.head_dim} cost?" if cost and cost.problem else question
        else:
            found = [s for s in run.answers if (s.suite, s.kernel, s.against) == (suite, kernel, against)]
            asked = f"{question} {_verdict(found[0])}." if found else question
        if found and said < MOST:
            said += 1
            yield asked, found[0], _count(found)


def _verdict(sentence: Sentence) -> str:
    """Whether the kernel is the faster one, beyond the noise."""
    if sentence.high is not None and sentence.high < 1:
        return "Yes"
    return "No" if sentence.low is not None and sentence.low > 1 else "No difference shown"


def _count(found: list[Sentence]) -> str:
    """As in ` Of 12 settings: 9 yes, 3 no.`, where there are several."""
    # What is said of a series rests on pairs that were counted before.
    settings = {tuple(one.cell_ids): one for one in reversed(found)}
    if len(settings) < 2:
        return ""
    counts = Counter(_verdict(one).lower() for one in settings.values())
    told = ", ".join(f"{counts[what]} {what}" for what in ("yes", "no", "no difference shown") if counts[what])
    return f" Of {len(settings)} settings: {told}."


def _sentence(sentence: Sentence) -> str:
    return f"{sentence.text[:1].upper()}{sentence.text[1:]}."


def _doubt(sentence: Sentence) -> str:
    """Says so where a sentence rests on times that are in doubt."""
    return f" In doubt: {'; '.join(sentence.doubts)}." if sentence.doubts else ""
