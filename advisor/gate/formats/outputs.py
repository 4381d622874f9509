"""Where the result of a gate goes, in which formats."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from advisor.engine.config import known
from advisor.errors import UsageError
from advisor.gate.model import Result
from advisor.inputs import output

# format -> (module with `render(result) -> str`, file name in a folder)
FORMATS: Mapping[str, tuple[str, str]] = {
    "text": ("advisor.gate.formats.as_text", "gate.txt"),
    "json": ("advisor.gate.formats.as_json", "gate.json"),
    "markdown": ("advisor.gate.formats.as_markdown", "gate.md"),
    "github": ("advisor.gate.formats.as_github", "gate.annotations"),
    "sarif": ("advisor.gate.formats.as_sarif", "gate.sarif"),
    "junit": ("advisor.gate.formats.as_junit", "gate.xml"),
}


def formats_of(args: argparse.Namespace) -> list[str]:
    """The formats asked for, checked. A file name picks its format; a folder without --format takes all."""
    formats = list(dict.fromkeys(name for value in args.format for name in value.split(",")))
    for name in formats:
        known(name, FORMATS, "format")
    path: Path | None = args.output
    if path is None:
        if len(formats) > 1 and set(formats) != {"text", "github"}:
            raise UsageError(f"{len(formats)} formats were requested; name a folder with --output")
        return formats or ["text"]
    if _is_folder(path):
        return formats or list(FORMATS)
    if len(formats) > 1:
        raise UsageError(f"--output {path} is one file, but {len(formats)} formats were requested; name a folder")
    return formats or [_by_suffix(path)]


def write(result: Result, args: argparse.Namespace) -> None:
    """Writes every asked-for format; the text goes to the terminal too when files were asked for."""
    formats = formats_of(args)
    path: Path | None = args.output
    if path is None:
        sys.stdout.write("".join(render(result, name) for name in formats))
        return
    for name in formats:
        target = path / FORMATS[name][1] if _is_folder(path) else path
        output.write_file(target, render(result, name), replace=True)
    if not args.quiet:
        sys.stdout.write(render(result, "text"))


def render(result: Result, name: str) -> str:
    """The result in that format, as text that any file can hold."""
    clean = msgspec.convert(_clean(msgspec.to_builtins(result)), Result)
    return str(importlib.import_module(FORMATS[name][0]).render(clean))


def _clean(value: Any) -> Any:
    """The same with every text encodable: a file name of undecodable bytes carries lone surrogates."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list | tuple) else value


def _is_folder(path: Path) -> bool:
    return path.is_dir() or not path.suffix


def _by_suffix(path: Path) -> str:
    for name, (_, file) in FORMATS.items():
        if Path(file).suffix == path.suffix.lower():
            return name
    suffixes = ", ".join(Path(file).suffix for _, file in FORMATS.values())
    raise UsageError(f"--output {path}: the suffix matches no format; use one of {suffixes}, or add --format")
