"""The charts of a report as files for papers: SVG and PNG, named after the charts."""

from collections.abc import Sequence
from pathlib import Path

from andrea_bench.files import make_folder, write_whole
from andrea_bench.report import charts
from andrea_bench.report.content import Chart, Page


def write_pictures(pages: Sequence[Page], folder: Path) -> dict[str, Path]:
    """Writes NAME.svg and NAME.png of each Chart; returns the SVG files by name. Raises BadInput."""
    make_folder(folder)
    written = {}
    for page in pages:
        for part in page.parts:
            if isinstance(part, Chart):
                written[part.name] = folder / f"{part.name}.svg"
                write_whole(written[part.name], charts.svg(part.picture, background="white").encode())
                write_whole(folder / f"{part.name}.png", charts.png(part.picture))
    return written
