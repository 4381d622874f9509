"""A rule's page as blocks that a template can show: headings, paragraphs, lists and code, nothing else."""

from __future__ import annotations

import re
from typing import Literal

from advisor.api import dataclass

_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*")


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a page. items holds the entries of a list, else one text."""

    kind: Literal["heading", "text", "list", "code"]
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A run of text inside a line."""

    kind: Literal["text", "code", "strong"]
    text: str


def blocks(page: str) -> tuple[Block, ...]:
    """The blocks of a page below its first line, which is the title."""
    _, _, body = page.partition("\n")
    found: list[Block] = []
    for chunk in _chunks(body):
        found += _block(chunk)
    return tuple(found)


def spans(text: str) -> tuple[Span, ...]:
    """A text split at `code` and **strong** marks."""
    found, end = [], 0
    for match in _INLINE.finditer(text):
        if match.start() > end:
            found.append(Span("text", text[end : match.start()]))
        found.append(Span("code", match[1]) if match[1] else Span("strong", match[2]))
        end = match.end()
    if text[end:]:
        found.append(Span("text", text[end:]))
    return tuple(found)


def widest(code: str) -> int:
    """Characters in the longest line."""
    return max(map(len, code.splitlines()), default=0)


def _chunks(body: str) -> list[list[str]]:
    """Lines grouped at blank lines; a fenced or indented block of code stays one group."""
    chunks: list[list[str]] = [[]]
    fenced = False
    for line in body.splitlines():
        fence = line.lstrip().startswith("```")
        code = fenced or line.startswith("    ")
        # Blank lines inside code belong to it; the next line decides.
        if not line.strip() and not code:
            chunks.append([])
            continue
        if (fence and not fenced) or line.startswith("#"):
            chunks.append([])
        chunks[-1].append(line)
        if (fence and fenced) or line.startswith("#"):
            chunks.append([])
        fenced = fenced != fence
    return _joined_code([chunk for chunk in chunks if chunk])


def _joined_code(chunks: list[list[str]]) -> list[list[str]]:
    joined: list[list[str]] = []
    for chunk in chunks:
        if joined and _is_indented(chunk) and _is_indented(joined[-1]):
            joined[-1] += ["", *chunk]
        else:
            joined.append(chunk)
    return joined


def _is_indented(chunk: list[str]) -> bool:
    return all(line.startswith("    ") or not line for line in chunk)


def _block(chunk: list[str]) -> list[Block]:
    first = chunk[0].lstrip()
    if first.startswith("#"):
        return [Block("heading", (first.lstrip("# "),))]
    if first.startswith("```"):
        code = [line for line in chunk if not line.lstrip().startswith("```")]
        return [Block("code", ("\n".join(code),))]
    if _is_indented(chunk):
        return [Block("code", ("\n".join(line[4:] for line in chunk),))]
    starts = [index for index, line in enumerate(chunk) if line.startswith(("- ", "* "))]
    if not starts:
        return [Block("text", (" ".join(line.strip() for line in chunk),))]
    head = [Block("text", (" ".join(line.strip() for line in chunk[: starts[0]]),))] if starts[0] else []
    ends = [*starts[1:], len(chunk)]
    items = tuple(" ".join(x.strip() for x in chunk[a:b])[2:] for a, b in zip(starts, ends, strict=True))
    return [*head, Block("list", items)]
