"""The site that is built of docs/: a page for each rule, every page in the menu, and nothing loaded from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import chromium
import pytest

from advisor import api
from advisor.engine.registry import load_rules

pytest.importorskip("material", reason="needs the extra `docs`")

ROOT = Path(__file__).parents[2]
RULES = [rule for rule in load_rules().rules if rule.pack == "builtin"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site. Strict: a link or an anchor that leads nowhere ends the build."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "docs" / "site" / "mkdocs.yml"), strict=True, site_dir=str(folder))
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return folder


def article(site: Path, page: str) -> str:
    """The text of a page, without the menu and without tags."""
    found = re.search(r"<article.*?</article>", (site / page / "index.html").read_text("utf-8"), re.DOTALL)
    assert found, page
    return " ".join(re.sub(r"<[^>]+>", " ", found[0]).split())


def test_a_page_for_each_rule_says_what_the_rule_says(site: Path) -> None:
    for rule in RULES:
        text = article(site, f"rules/{rule.id}")
        assert all(section in text for section in ("What it looks at", "Why it costs time", "When to leave it"))
        assert all(name in text for name in rule.thresholds)
        assert ("Not confirmed yet" in text) == (not rule.confirmed)


def test_every_page_of_docs_is_in_the_menu(site: Path) -> None:
    menu = (site / "index.html").read_text("utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert re.search(rf'href="{page.stem}/"', menu), page.name


def test_the_api_page_has_every_name(site: Path) -> None:
    headings = set(re.findall(r'<h3 id="[^"]+">([^<]+)<', (site / "api" / "index.html").read_text("utf-8")))
    assert set(api.__all__) - headings - {"dataclass"} == set()


def test_ids_of_rules_are_links(site: Path) -> None:
    page = (site / "coverage" / "index.html").read_text("utf-8")
    assert '<a href="../rules/small-batch/"><code>small-batch</code></a>' in page


def test_lists_and_tables_are_no_paragraphs(site: Path) -> None:
    """GitHub starts a list within a paragraph; Python-Markdown does not, and would run the items together."""
    for path in site.rglob("index.html"):
        for text in re.findall(r"<p>((?:(?!<pre|</p>).)*)</p>", path.read_text("utf-8"), re.DOTALL):
            assert not re.search(r"^\s*([-*] |\|)", text, re.MULTILINE), f"{path}: {text[:200]}"


def test_no_page_names_anything_to_load_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        assert not re.findall(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="?(?:https?:)?//', text), path


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    handler = partial(_Silent, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.browser
@pytest.mark.skipif(chromium.find() is None, reason="no Chromium on this machine")
def test_search_finds_a_rule_and_asks_no_other_host(site: Path, address: str, tmp_path: Path) -> None:
    found = """new Promise(done => { const look = () => {
        const hits = [...document.querySelectorAll('.md-search-result__link')].map(one => one.pathname);
        hits.length ? done(JSON.stringify(hits)) : setTimeout(look, 100) }; look() })"""
    with chromium.browser(tmp_path) as browser:
        browser.call("Page.navigate", url=f"{address}?q=pageable+copies")
        while not any(event.get("method") == "Page.loadEventFired" for event in browser.events):
            browser.run("1")
        hits = json.loads(browser.run(found))
        asked = {url for url in browser.requests() if not url.startswith((address, "data:", "blob:"))}
    assert any("/rules/pageable-copies/" in hit for hit in hits)
    assert asked == set()
