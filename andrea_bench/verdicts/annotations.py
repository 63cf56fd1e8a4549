"""Lines that CI systems turn into annotations of a change."""

from collections.abc import Iterator, Mapping

from andrea_bench.verdicts.document import Document
from andrea_bench.verdicts.wording import cell_name, headline, one_line, ratio_text, rows

SYSTEMS = {"github": "GITHUB_ACTIONS", "azure": "TF_BUILD", "teamcity": "TEAMCITY_VERSION"}
MOST = 10  # GitHub shows ten errors and ten warnings of a step


def system_here(environment: Mapping[str, str]) -> str | None:
    """The CI system that this process runs under, by the variable that it sets."""
    return next((name for name, variable in SYSTEMS.items() if environment.get(variable)), None)


def annotations(document: Document, system: str) -> Iterator[str]:
    """One line for the whole and one for each of the worst cells; none for `same` and `faster`."""
    worst = [c for c in rows(document) if c.verdict not in ("same", "faster")][:MOST]
    yield _line(system, "error" if document.exit_code else "notice", "andrea-bench", headline(document))
    for cell in worst:
        severity = "error" if cell.verdict in ("slower", "broken") else "warning"
        yield _line(system, severity, f"{cell.verdict} {cell_name(cell)}", f"{ratio_text(cell)} {cell.reason}")


def _line(system: str, severity: str, title: str, text: str) -> str:
    title, text = one_line(title), one_line(text)  # a line of its own could be a command
    if system == "github":
        return f"::{severity} title={_github(title, ':,')}::{_github(text)}"
    if system == "azure":
        kind = "error" if severity == "error" else "warning"
        return f"##vso[task.logissue type={kind}]{_github(f'{title}: {text}')}"
    status = {"error": "ERROR", "warning": "WARNING"}.get(severity, "NORMAL")
    return f"##teamcity[message text='{_teamcity(f'{title}: {text}')}' status='{status}']"


def _github(text: str, more: str = "") -> str:
    """Percent-escapes what would end the command or one of its properties."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _teamcity(text: str) -> str:
    for character, escaped in (("|", "||"), ("'", "|'"), ("\n", "|n"), ("\r", "|r"), ("[", "|["), ("]", "|]")):
        text = text.replace(character, escaped)
    return text
