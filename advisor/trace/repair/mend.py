"""Mends the text of one damaged event, in the ways that Kineto and those around it are known to damage it."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

DECODER = json.JSONDecoder(strict=False, parse_float=Decimal)
# Beyond this a damaged event is skipped: mending tries every quote in it.
LONGEST = 1 << 16

_STRING = r'"(?:[^"\\]|\\.)*"'
_WORD = re.compile(_STRING + r"|(?P<word>-?\b(?:nan|inf|infinity|N/A|none|true|false|undefined|nil)\b)", re.IGNORECASE)
_WORDS = {"true": "true", "false": "false"}
_COMMA = re.compile(_STRING + r"|,(?=\s*[}\],])|(?<=\{)\s*,")
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|(?P<bad>))')
_KEY = re.compile(r'([{,]\s*)([A-Za-z_][\w ]*)"(\s*:)')
_BARE = re.compile(r'("[^"\n]+"\s*:\s*)([^\s"\[\]{}\d-][^"]{0,4096}?)(?=\s*,\s*"[^"\n]+"\s*:|\s*\})')


def mended(text: str) -> Any:
    """The event in `text` after the gentlest repair that makes it readable; None where none does."""
    if len(text) > LONGEST:
        return None
    attempt = text
    for repair in (_words, _commas, _escapes, _keys, _quotes, _bare_values, _closed):
        attempt = repair(attempt)
        try:
            event = DECODER.decode(attempt)
        except (ValueError, RecursionError, ArithmeticError):
            continue
        return event if isinstance(event, dict) else None
    return None


def _words(text: str) -> str:
    """`nan`, `N/A`, `None` outside of strings: null; Python's True and False: JSON's."""
    return _WORD.sub(lambda m: m[0] if m["word"] is None else _WORDS.get(m["word"].lower(), "null"), text)


def _commas(text: str) -> str:
    """Commas without a value after them."""
    return _COMMA.sub(lambda m: m[0] if m[0].startswith('"') else "", text)


def _escapes(text: str) -> str:
    r"""Backslashes that escape nothing (`C:\code`, `\u` without digits): doubled. Valid escapes stay."""
    return _ESCAPE.sub(lambda m: "\\\\" if m["bad"] is not None else m[0], text)


def _keys(text: str) -> str:
    """Keys that lost their first quote (`tid": 0`)."""
    return _KEY.sub(r'\1"\2"\3', text)


def _quotes(text: str) -> str:
    """Quotes inside strings: escaped, unless what follows shows that the string ends there."""
    parts: list[str] = []
    inside, done = False, 0
    lists: list[str] = []
    for mark in _MARKS.finditer(text):
        at, char = mark.start(), mark[0][0]
        if char == '"' and not inside:
            inside = True
        elif char == '"' and _ends(text, at + 1, bool(lists) and lists[-1] == "["):
            inside = False
        elif char == '"':
            parts += (text[done:at], "\\")
            done = at
        elif not inside and char in "[{":
            lists.append(char)
        elif not inside and char in "]}" and lists:
            lists.pop()
    return "".join((*parts, text[done:]))


# What decides where a string ends; a backslash takes the next character with it.
_MARKS = re.compile(r'\\.|["\[\]{}]', re.DOTALL)
_END_IN_OBJECT = re.compile(r'\s*(?::\s*[-\d"\[{tfn]|\}|,\s*"[^"\n]*"\s*:|$)')
_END_IN_LIST = re.compile(r'\s*(?:\]|,\s*["\d\[{tfn-]|$)')


def _ends(text: str, at: int, in_list: bool) -> bool:
    """Whether a string may end before `at`: a key, a value or a bracket follows as it should."""
    return (_END_IN_LIST if in_list else _END_IN_OBJECT).match(text, at) is not None


def _bare_values(text: str) -> str:
    """Values of text without quotes (call stacks of torch 1.8)."""
    return _BARE.sub(lambda m: m[1] + json.dumps(m[2]), text)


def _closed(text: str) -> str:
    """Braces missing at the end."""
    missing = text.count("{") - text.count("}")
    return text + "}" * missing if 0 < missing < 3 else text
