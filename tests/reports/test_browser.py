"""The page in a real browser: harmless, silent, complete without JavaScript, readable, reachable by keyboard."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromium
import pytest
import reports_fixtures as fixtures
from report_parts import findings

from advisor.engine import registry

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.find() is None, reason="no Chromium on this machine"),
]

# What the page is made of; a name from a trace that became an element would add another, or an attribute.
ELEMENTS = re.findall(
    r"\w+",
    """
    html head meta title style body svg defs pattern rect path circle line text desc a p nav header fieldset legend
    label input span main section h1 h2 h3 h4 div ul ol li article dl dt dd details summary pre code button strong
    table caption thead tbody tr th td footer script br wbr
    """,
)
INVENTORY = """(() => {
  const all = [...document.querySelectorAll("*")];
  return {
    tags: [...new Set(all.map(e => e.localName))],
    handlers: all.flatMap(e => [...e.attributes]).map(a => a.name).filter(n => n.startsWith("on")),
    targets: all.flatMap(e => [...e.attributes]).filter(a => ["href", "src", "action", "data", "xlink:href"]
      .includes(a.name)).map(a => a.value),
    scripts: document.scripts.length, styles: document.querySelectorAll("style").length,
    inline: document.querySelectorAll("[style]").length,
  };
})()"""
# Contrast of every text with what lies behind it, as WCAG defines it; the worst ones come back.
CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = color => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = c => { const [r, g, b] = c.map(v => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c[3] === 255) return c; } return rgb(getComputedStyle(document.documentElement).backgroundColor); };
  const filled = rect => { const fill = getComputedStyle(rect).fill; const found = fill.match(/url\\("?#([\\w-]+)/);
    return rgb(found ? getComputedStyle(document.querySelector("#" + found[1] + " rect")).fill : fill); };
  const texts = [...document.querySelectorAll("body *")].filter(e => e.checkVisibility() &&
    [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && !["title", "desc"].includes(e.localName));
  return texts.map(e => { const s = getComputedStyle(e), svg = e.localName === "text";
    const box = svg && e.classList.contains("on") ? (e.previousElementSibling ?? e.parentElement.previousElementSibling)
      : null;
    const a = light(rgb(svg ? s.fill : s.color)), b = light(box ? filled(box) : behind(svg ? e.closest("div,p") : e));
    const size = parseFloat(s.fontSize), large = size >= 24 || (size >= 18.66 && s.fontWeight >= 700);
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), large ? 3 : 4.5, e.localName,
      e.getAttribute("class"), e.textContent.trim().slice(0, 30)]; }).filter(([ratio, least]) => ratio < least);
})()"""
FOCUS = """(() => { const e = document.activeElement, s = getComputedStyle(e);
  const shown = e.matches(".choice input") ? getComputedStyle(e.nextElementSibling) : s;
  return [[...document.querySelectorAll("*")].indexOf(e), e.localName, shown.outlineStyle !== "none"]; })()"""
# A group of radio buttons is one stop of the Tab key.
STOPS = """(() => { const all = [...document.querySelectorAll("*")]; return all.filter(e => e.checkVisibility() &&
  e.matches("a[href], button, summary, [tabindex='0'], input:checked")).map(e => all.indexOf(e)); })()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    with chromium.browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of every report, as a file."""
    folder, render = tmp_path_factory.mktemp("pages"), registry.load_reporter("html")
    made = {}
    for name, make in fixtures.REPORTS.items():
        made[name] = folder / f"{name}.html"
        made[name].write_text(render(make()), "utf-8")
    return made


def everything(browser: chromium.Browser) -> str:
    """All text of the page, folded parts included."""
    browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    text: str = browser.run("document.body.innerText")
    return text


@pytest.mark.parametrize("name", sorted(fixtures.REPORTS))
def test_no_text_becomes_an_element(browser: chromium.Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name])
    found = browser.run(INVENTORY)
    assert set(found["tags"]) <= set(ELEMENTS)
    assert found["handlers"] == []
    assert all(target.startswith("#") for target in found["targets"])
    assert (found["scripts"], found["styles"], found["inline"]) == (1, 1, 0)


def test_hostile_names_are_shown_as_they_are(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"])
    text = everything(browser)
    assert "<img src=x onerror=alert(2)>" in text
    assert "</script></style></title></textarea></svg>--><script>alert(1)</script>" in text
    assert "{{ 7*7 }}{% raw %}" in text
    assert "<img src=x onerror=alert(2)>" in browser.run("document.title")


@pytest.mark.parametrize("name", sorted(fixtures.REPORTS))
def test_the_page_asks_for_nothing_and_complains_of_nothing(
    browser: chromium.Browser, pages: dict[str, Path], name: str
) -> None:
    for dark in (False, True):
        browser.open(pages[name], dark=dark)
        # Style and script are alive, so their hashes are right: a blocked one would be logged, too.
        assert browser.run("getComputedStyle(document.body).marginTop") == "0px"
        assert browser.requests() == []
        assert browser.complaints() == []
    if name == "canonical":
        assert browser.run("document.querySelectorAll('button.copy:not([hidden])').length") > 0


def test_a_foreign_script_would_be_stopped_by_the_policy(
    browser: chromium.Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    """The guard behind the escaping: what got in all the same does not run."""
    spoilt = tmp_path / "spoilt.html"
    text = pages["canonical"].read_text("utf-8")
    spoilt.write_text(
        text.replace("<main", "<script>window.hit = 1</script><img src=x onerror='hit = 2'><main"), "utf-8"
    )
    browser.open(spoilt)
    assert browser.run("typeof window.hit") == "undefined"
    assert browser.complaints()


@pytest.mark.parametrize("name", sorted(fixtures.REPORTS))
def test_everything_is_there_without_javascript(browser: chromium.Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name])
    # What says how to use the script.
    browser.run("document.querySelectorAll('.live').forEach(one => one.remove())")
    with_script = everything(browser).replace("Copy\n", "").replace("Copy", "")
    browser.open(pages[name], scripts=False)
    without = everything(browser).replace("Copy", "")
    assert without.split() == with_script.split()
    if name == "canonical":
        for outcome in findings():
            assert outcome.rule in without


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["canonical", "many_ranks", "on_cpu", "empty"])
def test_every_text_stands_out_from_its_ground(
    browser: chromium.Browser, pages: dict[str, Path], name: str, dark: bool
) -> None:
    browser.open(pages[name], dark=dark)
    everything(browser)
    assert browser.run(CONTRAST) == []


def test_every_control_is_reached_by_keyboard_and_shows_it(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["canonical"])
    wanted = set(browser.run(STOPS))
    reached = set()
    for _ in range(len(wanted) + 5):
        browser.press("Tab", 9)
        index, name, outlined = browser.run(FOCUS)
        if name != "body":
            assert outlined, f"focus on a {name} is invisible"
            reached.add(index)
    assert wanted <= reached


@pytest.mark.parametrize("width", [320, 400, 768, 1280])
@pytest.mark.parametrize("name", sorted(fixtures.REPORTS))
def test_the_page_never_scrolls_sideways(
    browser: chromium.Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    browser.open(pages[name], width=width)
    everything(browser)
    assert browser.run("document.documentElement.scrollWidth") <= width


def test_the_colours_can_be_chosen_without_javascript(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["canonical"], scripts=False)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(ground)
    browser.run("document.getElementById('theme-dark').checked = true")
    dark = browser.run(ground)
    browser.open(pages["canonical"], scripts=False, dark=True)
    assert browser.run(ground) == dark != light
    browser.run("document.getElementById('theme-light').checked = true")
    assert browser.run(ground) == light


def test_the_timeline_zooms_without_javascript(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["canonical"], scripts=False)
    width = "document.querySelector('.lanes').getBoundingClientRect().width"
    before = browser.run(width)
    browser.run("document.getElementById('zoom-4').checked = true")
    assert browser.run(width) == pytest.approx(4 * before, rel=0.01)
    assert browser.run("document.documentElement.scrollWidth") <= 1280


def test_the_copy_button_copies_the_changed_lines(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["canonical"])
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    browser.run("document.querySelector('button.copy').focus()")
    browser.press("Enter", 13, "\r")
    browser.run("new Promise(done => setTimeout(done, 200))")
    assert browser.run("document.querySelector('button.copy').textContent") == "Copied"
    after = findings()[1].findings[0].fix
    assert after
    assert browser.run("navigator.clipboard.readText()") == after.after


def test_the_bar_has_the_lengths_of_the_shares(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["canonical"])
    drawn = browser.run(
        "[...document.querySelectorAll('.first .bar > rect')].map(one => one.getBoundingClientRect().width)"
    )
    shares = [item.share for item in fixtures.canonical().breakdown]
    assert [length / sum(drawn) for length in drawn] == pytest.approx(shares, abs=0.004)


def test_print_opens_the_evidence_and_drops_controls(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["canonical"])
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.run("getComputedStyle(document.querySelector('.theme')).display") == "none"
    folded = "document.querySelectorAll('details:not([open], .page, .table, .long)').length"
    before = browser.run(folded)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run(folded) == 0 < before
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run(folded) == before
    pdf = base64.b64decode(browser.call("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF")
    browser.call("Emulation.setEmulatedMedia", media="")


def axe() -> Path | None:
    """axe-core's script, where AXE_CORE or a node_modules beside the checkout holds it (npm install axe-core)."""
    root = Path(__file__).parents[2]
    places = (os.environ.get("AXE_CORE", ""), root / "node_modules", root.parent / "node_modules")
    files = [Path(place) / "axe-core" / "axe.min.js" for place in places if place]
    return next((file for file in files if file.is_file()), None)


SORTED = "[...document.querySelectorAll('.heat tbody tr')].map(row => +row.cells[0].textContent)"


def test_the_heat_map_is_sorted_by_keyboard(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["large_job"])
    assert browser.run(SORTED) == list(range(12))
    head = "[...document.querySelectorAll('.heat thead button')].find(one => one.textContent === 'Own work')"
    browser.run(f"{head}.focus()")
    browser.press("Enter", 13, "\r")
    # The slow node's other ranks come after the late rank, which is on it, too; equal ones by number.
    assert browser.run(SORTED) == [5, 4, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11]
    assert browser.run(f"{head}.closest('th').ariaSort") == "descending"
    browser.press("Enter", 13, "\r")
    assert browser.run(SORTED)[-1] == 5
    assert browser.run("document.querySelectorAll('.heat [aria-sort]').length") == 1
    browser.run("document.querySelector('.heat thead button').click()")
    assert browser.run(SORTED) == list(range(12))


def test_a_cell_of_the_heat_map_is_read_by_arrow_keys_and_by_pointer(
    browser: chromium.Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["large_job"])
    said = "document.getElementById('heat-readout').textContent"
    browser.run("document.querySelector('.heat tbody th').focus()")
    for key, code in (*[("ArrowDown", 40)] * 5, *[("ArrowRight", 39)] * 6):
        browser.press(key, code)
    assert browser.run("document.activeElement.closest('tr').cells[0].textContent") == "5"
    assert browser.run(said) == (
        "Rank 5, node 1, pipeline stage 0, data place 5 — Others wait: 25.0 ms (median rank: 0.0 ms)"
    )
    assert browser.run("document.querySelectorAll('.heat tbody [tabindex]').length") == 1
    box = browser.run(
        "(() => { const cell = document.querySelector('.heat tbody').rows[2].cells[5]; cell.scrollIntoView({block: "
        "'center'}); const box = cell.getBoundingClientRect(); return [box.x + 4, box.y + 4]; })()"
    )
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    assert browser.run(said).startswith("Rank 2, node 0, pipeline stage 0, data place 2 — Own work: 68.6 ms")


def test_the_heat_map_is_a_table_without_javascript(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["large_job"], scripts=False)
    assert browser.run("document.querySelectorAll('.heat button').length") == 0
    assert browser.run("document.getElementById('heat-readout').checkVisibility()") is False
    height = "document.querySelector('.heat tbody tr').getBoundingClientRect().height"
    before = browser.run(height)
    browser.run("document.getElementById('heat-compact').checked = true")
    assert browser.run(height) < before / 2


@pytest.mark.skipif(axe() is None, reason="axe-core is not installed (npm install axe-core)")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", sorted(fixtures.REPORTS))
def test_axe_finds_no_violation(browser: chromium.Browser, pages: dict[str, Path], name: str, dark: bool) -> None:
    browser.open(pages[name], dark=dark)
    script = axe()
    assert script
    browser.run(script.read_text("utf-8") + "; 0")
    everything(browser)
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    told = "r.violations.map(v => [v.id, v.nodes[0].html.slice(0, 200)])"
    found: list[Any] = browser.run(f"axe.run(document, {{runOnly: {tags}}}).then(r => {told})")
    assert found == []
