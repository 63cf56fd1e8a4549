"""What a report is made from and made of, whatever its format: Runs and Facts in; pages of text, answers,
tables and charts out. A page knows no format, a format knows no page."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from andrea_bench.record import RunHead
from andrea_bench.report.answers import Sentence
from andrea_bench.report.rows import GroupRows, Row

if TYPE_CHECKING:
    import altair


# ---- in ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Ceiling:
    """What a machine can reach at best. source: who says so. tflops: of matrix products, by dtype."""

    source: str
    tflops: dict[str, float]
    gb_per_s: float | None


@dataclass(frozen=True)
class MeasuredRun:
    """A Run with its rows and answers, and the ceilings of its machine that are known, measured ones first.
    label: how the report calls it, unlike any other of its Runs."""

    label: str
    head: RunHead
    groups: list[GroupRows]
    answers: list[Sentence]
    ceilings: list[Ceiling] = field(default_factory=list)

    def rows(self) -> list[Row]:
        return [row for group in self.groups for row in group.rows]

    def of_suite(self, *names: str) -> list[GroupRows]:
        """The Groups of these suites in which a kernel has a time."""
        return [g for g in self.groups if g.suite in names and any(row.median_us is not None for row in g.rows)]


@dataclass(frozen=True)
class CompiledFacts:
    """A Facts file: its rows (as in schema/facts.schema.json), and the tables that `inspect` makes of them."""

    compilers: dict[str, str | None]
    facts: list[dict[str, Any]]
    caption: str
    tables: list["Table"]
    refusals: list[str]


@dataclass(frozen=True)
class ComparedCell:
    """One cell's verdict, as `compare` words it. ratio: head time over base time; low and high are None where
    the processes were too few for an interval. n: processes of base and of head."""

    cell_id: str
    name: str
    verdict: str
    reason: str
    ratio_text: str
    n: tuple[int, int] = (0, 0)
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Comparison:
    """What `compare` says of two Runs, which are called base and head here by their labels."""

    base: str
    head: str
    headline: str
    remarks: list[str] = field(default_factory=list)
    cells: list[ComparedCell] = field(default_factory=list)


@dataclass(frozen=True)
class Subject:
    """What a report is about. command: the one that made the report, as typed. claims: as `claims --json` has
    them; None where none were given. comparisons: of each further Run with the first.
    history: as `history --json` has it; None where none was given."""

    runs: list[MeasuredRun]
    facts: CompiledFacts | None
    command: str
    claims: list[dict[str, Any]] | None = None
    comparisons: list[Comparison] = field(default_factory=list)
    history: dict[str, Any] | None = None


# ---- out ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Table:
    """Rows of text under heads. numeric: columns to be set flush right. folded: details, shown on demand."""

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numeric: frozenset[str] = frozenset()
    folded: bool = False


@dataclass(frozen=True)
class Chart:
    """A picture and all that it shows as a table.

    name: of its file and anchor, [a-z0-9-]. about: units, n, intervals and scales in words."""

    name: str
    title: str
    about: str
    picture: "altair.TopLevelMixin"
    data: Table


@dataclass(frozen=True)
class Said:
    """A sentence that a person can repeat, the rows that it rests on, and the question that it answers."""

    text: str
    cell_ids: tuple[str, ...] = ()
    question: str = ""


@dataclass(frozen=True)
class Heading:
    """Begins a part of a page, as that of one Run."""

    text: str


@dataclass(frozen=True)
class AllRows:
    """Every row of every Run, to be sorted and filtered where the format can.

    columns: names with units. rows: text, numbers or None. shapes: of each row its samples as counts in equal
    bins from the least to the greatest, one digit a bin (9 the fullest); empty without samples."""

    columns: tuple[str, ...]
    rows: list[tuple[str | float | int | None, ...]]
    shapes: list[str]


Part = str | Said | Heading | Table | Chart | AllRows


@dataclass(frozen=True)
class Page:
    """A page of the report. absent: why it has no content; it is then left out and this is said instead."""

    name: str
    title: str
    parts: list[Part] = field(default_factory=list)
    absent: str | None = None
