"""The HTML report in a real headless browser, with the network off."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, chromium
from hostile import NASTY, hostile_run
from made_up import FIXTURES, RUN, changed_run, in_processes, on_h200

from andrea_bench.cli.main import main
from andrea_bench.report.content import Subject
from andrea_bench.report.html import html
from andrea_bench.report.pages import pages
from andrea_bench.report.subject import read_runs
from andrea_bench.store import read_run

pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium here (Debian: apt-get install chromium)")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "my reports β.html"
    assert main(["report", str(RUN), "--html", str(file)]) == 0
    return file


@pytest.fixture(scope="module")
def every_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two Runs to be compared, and one of a GPU that was watched, with Facts and claims."""

    def slower(record: dict[str, Any]) -> None:
        in_processes(record, 1.3 if record["kernel"] == "fused_qkv" else 1.001)

    def watched(record: dict[str, Any]) -> None:
        on_h200(record)
        record["counters"] |= {"gpu_temperature_celsius": 50 + record["problem"]["seq_len"] % 7, "computed_width": 32}

    folder = tmp_path_factory.mktemp("every")
    base = changed_run(folder / "base", in_processes, suites=("projection",))
    head = changed_run(folder / "head", slower, suites=("projection",))
    gpu = {"device": "cuda", "gpu": {"name": "NVIDIA H200"}}
    h200 = changed_run(folder / "h200", watched, gpu, suites=("projection", "alignment"))
    file = folder / "every.html"
    more = ["--facts", str(FIXTURES / "facts_small.json"), "--claims", str(FIXTURES / "claims.json")]
    assert main(["report", str(base), str(head), str(h200), *more, "--html", str(file)]) == 0
    return file


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_it_opens_offline_without_a_complaint_or_a_request_and_fits(
    browser: Browser, page: Path, width: int, scheme: str
) -> None:
    browser.open(page, width=width, scheme=scheme)
    assert fits(browser) >= 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_pages_of_several_runs_open_and_fit_too(browser: Browser, every_page: Path, width: int, scheme: str) -> None:
    browser.open(every_page, width=width, scheme=scheme)
    assert fits(browser) >= 10
    assert browser.ask("Array.from(document.querySelectorAll('main > section')).map(s => s.id)") == [
        "answers", "machine", "fusing", "alignment", "layer", "roofline", "structure", "claims", "comparison",
        "energy", "all-rows",
    ]  # fmt: skip
    # A chart is never wider than what shows it: on a phone it is drawn smaller, not cut off.
    assert browser.ask("Array.from(document.querySelectorAll('figure svg')).every(s => s.clientWidth <= innerWidth)")
    # Every link within the page leads somewhere.
    assert browser.ask(
        "Array.from(document.querySelectorAll('a[href^=\"#\"]')).every(a => document.querySelector(a.hash))"
    )


def fits(browser: Browser) -> int:
    """Asserts that the open page complains of nothing, asks for nothing, and fits; the number of its charts."""
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    # Every chart has marks that take room.
    empty = browser.ask(
        "Array.from(document.querySelectorAll('figure')).filter(f => !Array.from("
        "f.querySelectorAll('svg .role-mark [aria-label]')).some(m => { const b = m.getBoundingClientRect();"
        " return b.width + b.height > 2; })).map(f => f.id)"
    )
    assert empty == []
    count: int = browser.ask("document.querySelectorAll('figure').length")
    return count


def test_text_has_contrast_in_both_schemes(browser: Browser, page: Path) -> None:
    # WCAG 2.1, 1.4.3: 4.5 to 1 for text. Text of SVG has its ink in `fill`; behind a figure of a heat map is its cell.
    contrast = """(() => {
      const parts = text => text.match(/[0-9.]+/g).slice(0, 3).map(Number).map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
      const light = text => { const [r, g, b] = parts(text); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const apart = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      const paper = light(getComputedStyle(document.body).backgroundColor);
      const all = (where, within = document) => Array.from(within.querySelectorAll(where));
      const middle = e => { const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; };
      const holds = (cell, [x, y]) => { const b = cell.getBoundingClientRect();
        return b.left <= x && x <= b.right && b.top <= y && y <= b.bottom; };
      const found = { page: [], chart: [], cell: [] };
      for (const e of all('p.answer, a, figcaption p, td, th, caption, summary')) {
        const behind = e.matches('.answer, .answer a') ? e.closest('.answer') : document.body;
        found.page.push(apart(light(getComputedStyle(e).color), light(getComputedStyle(behind).backgroundColor)));
      }
      for (const svg of all('figure svg')) {
        const cells = all('[aria-roledescription="rect mark"]', svg);
        for (const e of all('text', svg).filter(e => e.textContent.trim())) {
          const ink = light(getComputedStyle(e).fill), at = middle(e);
          const cell = e.closest('.mark-text.role-mark') && cells.find(cell => holds(cell, at));
          if (cell) found.cell.push(apart(ink, light(getComputedStyle(cell).fill)));
          else found.chart.push(apart(ink, paper));
        }
      }
      for (const of in found) found[of] = [found[of].length, Math.min(...found[of])];
      return found;
    })()"""
    for scheme in ("light", "dark"):
        browser.open(page, scheme=scheme)
        found = browser.ask(contrast)
        assert found["page"][0] > 1000 and found["chart"][0] > 100 and found["cell"][0] > 5
        assert min(least for _, least in found.values()) > 4.5, (scheme, found)


def test_rows_are_sorted_filtered_and_reached_from_an_answer(browser: Browser, page: Path) -> None:
    browser.open(page)
    column = "Array.from(document.querySelectorAll('#rows-table th')).findIndex(h => h.innerText.startsWith('%s'))"
    cells = f"Array.from(document.querySelectorAll('#rows-table tbody tr')).map(r => r.children[{column}].textContent)"
    press = "document.querySelectorAll('#rows-table th')[%s].querySelector('button').click()"
    press = press % (column % "time")
    assert "76" in browser.ask("document.getElementById('rows-said').textContent")

    browser.ask(press)
    times = [float(t) for t in browser.ask(cells % "time") if t != "-"]
    assert times == sorted(times) and len(times) > 40
    assert browser.ask("document.querySelector('#rows-table th[aria-sort]').getAttribute('aria-sort')") == "ascending"
    browser.ask(press)
    shown = browser.ask(cells % "time")
    falling = [float(t) for t in shown if t != "-"]
    assert falling == sorted(times, reverse=True)
    # What has no time comes last in either direction.
    assert shown[len(falling) :] == ["-"] * (len(shown) - len(falling)) and len(shown) > len(falling)

    type_in = "(() => { const s = document.getElementById('rows-search'); s.value = %r; " \
              "s.dispatchEvent(new Event('input')); })()"  # fmt: skip
    browser.ask(type_in % "layer FIVE_steps")
    kernels = browser.ask(cells % "kernel")
    assert "five_steps_per_head" in kernels and all(k.startswith("five_steps") for k in kernels)
    browser.ask(type_in % "no such row")
    assert browser.ask("document.getElementById('rows-said').textContent") == "No row of 76 fits"

    browser.ask("document.querySelector('a[data-cells]').click()")
    assert sorted(browser.ask(cells % "kernel")) == ["fused_qkv", "per_head_loop"]


def test_a_mark_tells_its_figures_unit_and_cell(browser: Browser, page: Path) -> None:
    browser.open(page)
    tip = browser.ask(
        "(() => { const m = document.querySelector('#fusing-1-1 svg .role-mark [aria-label]');"
        " m.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: 50, clientY: 50}));"
        " const t = document.getElementById('tip'); return t.hidden ? '' : t.textContent; })()"
    )
    assert tip.startswith("per_head_loop: ") and " us (" in tip and "n 10" in tip and "cell_id " in tip


def test_a_line_is_silent_where_its_points_and_intervals_speak(browser: Browser, page: Path) -> None:
    browser.open(page)
    chart = "#alignment-1-1 svg .mark-%s.role-mark path, #alignment-1-1 svg .mark-%s.role-mark line"
    tips = """(where => Array.from(document.querySelectorAll(where)).map(mark => {
        mark.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: 50, clientY: 50}));
        const tip = document.getElementById('tip'); return tip.hidden ? '' : tip.textContent; }))"""
    spoken = {kind: browser.ask(f"{tips}({chart % (kind, kind)!r})") for kind in ("line", "symbol", "rule")}
    assert spoken["line"] and set(spoken["line"]) == {""}
    for kind in ("rule", "symbol"):
        assert len(spoken[kind]) == len(set(spoken[kind])) > 4
        assert all(" us (" in tip and ", n 10;" in tip and "; cell_id " in tip for tip in spoken[kind])
    # Axes and legends, which a screen reader is told of, are not tips.
    axis = "#alignment-1-1 svg [aria-roledescription=axis]"
    assert set(browser.ask(f"{tips}({axis!r})")) == {""}


def test_it_can_be_read_by_keyboard_and_by_a_screen_reader(browser: Browser, page: Path) -> None:
    browser.open(page)
    # A button, a link or a summary is named by its text; a picture or a region never by what it holds.
    nameless = """(() => {
      const named = id => { const e = document.getElementById(id); return e && e.textContent.trim(); };
      const label = e => (e.getAttribute('aria-label') || '').trim()
        || (e.getAttribute('aria-labelledby') || '').split(/\\s+/).filter(Boolean).some(named);
      const by_text = 'button, a, summary', by_label = 'input, select';
      const others = 'svg, nav, section, [role=region], [role=group], [tabindex]';
      const all = Array.from(document.querySelectorAll([by_text, by_label, others].join()));
      const named_so = e => label(e) || (e.matches(by_text) && e.textContent.trim())
        || (e.matches(by_label) && Array.from(e.labels).some(l => l.textContent.trim()));
      return [all.length, all.filter(e => !named_so(e)).map(e => e.outerHTML.slice(0, 90))];
    })()"""
    count, without = browser.ask(nameless)
    assert count > 100 and without == []
    # What can be scrolled can be reached, and the marks of a chart are told one by one.
    assert browser.ask(
        "Array.from(document.querySelectorAll('.wide')).every(e => e.tabIndex === 0 && e.matches('[role=region]'))"
    )
    marks = (
        "Array.from(document.querySelectorAll('figure svg')).map(e => e.querySelectorAll('.role-mark [aria-label]'))"
    )
    assert browser.ask(f"{marks}.every(found => found.length > 1)")
    assert browser.ask("Array.from(document.querySelectorAll('table')).every(t => t.caption && t.tHead)")
    # A link to a chart's data opens the table that holds them.
    browser.ask("document.querySelector('figure figcaption a').click()")
    browser.ask("new Promise(done => setTimeout(done, 100))")
    assert browser.ask("document.querySelector('figure details').open")


def test_hostile_names_stay_text_in_what_the_script_writes(browser: Browser, tmp_path: Path) -> None:
    """RP03 and C32: a parser of the file alone can't see the rows, which are made when it is opened."""
    run, file = hostile_run(tmp_path / "run"), tmp_path / "hostile.html"
    subject = Subject(read_runs([run], lambda head: None), None, "andrea-bench report " + "".join(NASTY))
    file.write_text(html(pages(subject), "".join(NASTY)), encoding="utf-8")
    browser.open(file)
    records = read_run(run).records
    column = (
        "Array.from(document.querySelectorAll('#rows-table tbody tr')).map(r => r.cells[Array.from("
        "document.querySelectorAll('#rows-table th')).findIndex(h => h.innerText === '%s')].textContent)"
    )
    expected = {
        "kernel": [r.kernel for r in records],
        "ran as": [r.selected_backend for r in records],
        "reasons": ["; ".join(r.validity.reasons) if r.samples_us else r.reason for r in records],
    }
    assert set(NASTY) <= {value for values in expected.values() for value in values}
    for head, values in expected.items():
        assert browser.ask(column % head) == values
    search = "(() => { const s = document.getElementById('rows-search'); s.value = %r; " \
             "s.dispatchEvent(new Event('input')); return s.value; })()"  # fmt: skip
    word = "attn<64,true>"
    browser.ask(search % word)
    holding = [r.cell_id for r, *texts in zip(records, *expected.values(), strict=True) if word in texts]
    assert browser.ask(column % "cell_id") == holding != []
    # A name in a tooltip is text as well.
    tip = browser.ask(
        "(() => { const m = Array.from(document.querySelectorAll('figure svg .role-mark [aria-label]'))"
        ".find(m => m.getAttribute('aria-label').includes('<'));"
        " m.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: 50, clientY: 50}));"
        " const t = document.getElementById('tip'); return [t.textContent, t.children.length]; })()"
    )
    assert "<" in tip[0] and tip[1] == 0
    # No element came of a name, and none of them ran.
    assert browser.ask("document.querySelectorAll('img, script[src], iframe, [onerror], [onload], b').length") == 0
    assert browser.ask("document.scripts.length") == 2
    assert [e for e in browser.events if e["method"] == "Page.javascriptDialogOpening"] == []
    assert (browser.complaints(), browser.requests()) == ([], [])
