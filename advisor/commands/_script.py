"""Where our own options end and the script's command line begins."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

# A script that declares its options spells these nowhere.
_EVERYBODYS = ("-h", "--help")


def take_target(parser: argparse.ArgumentParser) -> None:
    """Our own options end at the script; everything from there on is `args.target`, untouched."""
    parse = parser.parse_known_args

    def parse_ours(words: Any = None, namespace: Any = None) -> Any:
        # argparse would look for our options among the script's: the line is cut before it sees it.
        ours, rest = split(list(words or ()), with_value(parser))
        args, left = parse(ours, namespace)
        args.target = rest
        hint(parser, rest, quiet=args.quiet)
        return args, left

    parser.parse_known_args = parse_ours  # type: ignore[method-assign,assignment]


def with_value(parser: argparse.ArgumentParser) -> set[str]:
    """Our options that take the next word as their value."""
    return {name for action in parser._actions if action.nargs is None for name in action.option_strings}


def split(words: list[str], with_value: Collection[str]) -> tuple[list[str], list[str]]:
    """Our own options, and everything that belongs to the script: from the first word that is no option of ours on."""
    place = 0
    while place < len(words):
        word = words[place]
        if word in ("-", "--") or not word.startswith("-") or (word[:2] in ("-m", "-c") and word[:2] != "--"):
            break
        place += 2 if word in with_value else 1
    return words[:place], words[place:]


def hint(parser: argparse.ArgumentParser, target: Sequence[str], *, quiet: bool = False) -> None:
    """Says on stderr which of the script's arguments are spelled like options of ours and unknown to the script."""
    if quiet or not target or target[0][:2] in ("-m", "-c"):
        return  # what a module or a line of code takes is not known
    ours = {name for action in parser._actions for name in action.option_strings if name not in _EVERYBODYS}
    script = next((place for place, word in enumerate(target) if Path(word).suffix == ".py"), None)
    text = _text(target[script]) if script is not None else None
    if script is None or text is None:
        return  # nor what a launcher without a script takes
    for said in _taken_for_ours(target[script + 1 :], ours, with_value(parser), text):
        line = f"{said} goes to {Path(target[script]).name}; put options of advisor before the script"
        print(f"advisor: {line}", file=sys.stderr, flush=True)


def _taken_for_ours(words: Sequence[str], ours: Collection[str], valued: Collection[str], text: str) -> Iterator[str]:
    """Words of the script's that are options of ours, with their values, unless the script's text mentions them."""
    for place, word in enumerate(words):
        if word == "--":
            return
        name = word.split("=", 1)[0]
        if name not in ours or _mentions(text, name):
            continue
        value = words[place + 1 : place + 2] if name in valued and "=" not in word else []
        yield " ".join((word, *value))


def _mentions(text: str, option: str) -> bool:
    """Whether a script's text declares an option: spelled out, as a name in quotes, or as a field with a type."""
    name = re.escape(option.lstrip("-")).replace(r"\-", "[-_]")
    dashes = "--" if option.startswith("--") else "-"
    return bool(re.search(rf"""(?<![\w-]){dashes}{name}(?![\w-])|["']{name}["']|\b{name}\s*:""", text))


def _text(script: str) -> str | None:
    try:
        return Path(script).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
