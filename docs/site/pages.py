"""Hooks of MkDocs: generated pages, their place in the menu, and links that hold on the site as on GitHub."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import api_page
import rule_pages

from advisor.engine.registry import load_rules

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
RULES = sorted((rule for rule in load_rules().rules if rule.pack == "builtin"), key=lambda rule: rule.id)
# A file of the site -> where it lies in the tree, if not at that place of docs/.
ELSEWHERE = {"index.md": "README.md", "contributing.md": ".github/CONTRIBUTING.md", "site.css": "docs/site/site.css"}
# Folders of docs/ that hold files without pages: GitHub lists them, here a page does.
FOLDERS = [
    path for path in (ROOT / "docs").iterdir() if path.is_dir() and path.name != "site" and not [*path.glob("*.md")]
]
IDS = "|".join(sorted((rule.id for rule in RULES), key=len, reverse=True))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The menu with a page for each rule, below its family, and with pages that it does not list."""
    nav: list[dict[str, list[Any]]] = config.nav
    for section in nav:
        section.get("Rules", []).extend(rule_pages.menu(RULES))
    listed = set(_paths(nav))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | {f"{folder.name}/index.md" for folder in FOLDERS}
    if others := sorted(pages - listed):
        nav.append({"More": others})
    config.watch += [str(ROOT / "rules"), str(ROOT / "README.md"), str(ROOT / ".github")]
    return config


def _paths(nav: Any) -> Iterator[str]:
    """The pages that a menu names."""
    if isinstance(nav, str):
        yield nav
    else:
        for one in nav.values() if isinstance(nav, dict) else nav:
            yield from _paths(one)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages that are generated, and files that lie elsewhere."""
    from mkdocs.structure.files import File

    made = {path: (ROOT / name).read_text("utf-8") for path, name in ELSEWHERE.items()}
    made |= {"api.md": api_page.page(), "rules/index.md": rule_pages.index(RULES)}
    made |= {f"rules/{rule.id}.md": rule_pages.page(rule) for rule in RULES}
    made |= {f"{folder.name}/index.md": _listing(folder) for folder in FOLDERS}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def _listing(folder: Path) -> str:
    """A page of links to the files of a folder."""
    return "\n".join(
        [f"# {folder.name.title()}", "", *(f"- [{path.name}]({path.name})" for path in sorted(folder.iterdir()))]
    )


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Markdown as GitHub reads it, made what Python-Markdown reads; ids of rules become links to their pages."""
    path = page.file.src_uri

    def changed(line: str) -> str:
        line = re.sub(r"(?<=\]\()(\.\./)?docs/", "", line)
        line = re.sub(r"(?<=\]\()(\.\./)?\.github/CONTRIBUTING\.md", "contributing.md", line)
        for folder in FOLDERS:
            line = re.sub(rf"(?<=\]\(){folder.name}/?(?=\))", f"{folder.name}/index.md", line)
        return line if line.startswith("#") else _linked(line, path)

    # Drawing it here would take a script of 3 MB from a CDN.
    markdown = markdown.replace("```mermaid\n", '```{ .text title="Diagram in Mermaid: GitHub draws it" }\n')
    return _lists_apart(_outside_code(markdown, changed))


def _linked(line: str, path: str) -> str:
    """The line with a link at each rule that it names in code, but for the page's own."""
    folder = "" if path.startswith("rules/") else "rules/"

    def link(found: re.Match[str]) -> str:
        own = path == f"rules/{found[1]}.md"
        return found[0] if own else f"[`{found[1]}`]({folder}{found[1]}.md)"

    return re.sub(rf"(?<![\[`])`({IDS})`(?![\]`])", link, line)


def _outside_code(markdown: str, changed: Callable[[str], str]) -> str:
    """The text with every line changed that lies in no block of code."""
    lines, fenced = [], False
    for line in markdown.split("\n"):
        mark = line.lstrip().startswith("```")
        lines.append(line if fenced or mark or line.startswith("    ") else changed(line))
        fenced ^= mark
    return "\n".join(lines)


def _lists_apart(markdown: str) -> str:
    """An empty line above each list: GitHub needs none, Python-Markdown takes the list for more of the paragraph."""
    lines: list[str] = []
    fenced = False
    for line in markdown.split("\n"):
        item = re.match(r"([-*]|\d+\.) ", line)
        if item and not fenced and lines and re.match(r"[^\s\-*#>|]", lines[-1]) and not _in_list(lines):
            lines.append("")
        lines.append(line)
        fenced ^= line.lstrip().startswith("```")
    return "\n".join(lines)


def _in_list(lines: list[str]) -> bool:
    """Whether the paragraph that ends here is an item of a list."""
    paragraph: list[str] = []
    for line in reversed(lines):
        if not line.strip():
            break
        paragraph.append(line)
    return any(re.match(r"([-*]|\d+\.) ", line) for line in paragraph)
