"""`advisor gate history add|show`: results of many commits, and where their level changed."""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import UsageError

if TYPE_CHECKING:
    from advisor.gate.config import GateConfig

FORMATS = ("text", "json", "html")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `gate history`."""
    parser.add_argument("--history", type=Path, metavar="FILE", help="file for `history` (default: perf-history.jsonl)")
    parser.add_argument("--commit", metavar="ID", help="commit for `history add` (default: HEAD)")
    parser.add_argument("--since", default="", metavar="ID", help="changes before this commit do not fail `history`")
    parser.add_argument(
        "--metric", default="step_time_us", metavar="ID", help="metric for `history` (default: step_time_us)"
    )


def run(args: argparse.Namespace, settings: GateConfig) -> int:
    """Adds results or shows the history; returns the exit status."""
    from advisor.gate.history import results_file

    words: Sequence[str] = args.words[1:]
    path: Path = args.history or Path(results_file.DEFAULT)
    if words and words[0] == "add":
        return _add(path, words[1:], args)
    if not words or words == ["show"]:
        return _show(path, args, settings)
    raise UsageError(f"gate history: expected add or show, not '{words[0]}'")


def _add(path: Path, names: Sequence[str], args: argparse.Namespace) -> int:
    from advisor.gate import files
    from advisor.gate.history import results_file

    if not names:
        raise UsageError("gate history add needs a report.json, or a folder that contains one")
    reports = [files.read_report(Path(name), baseline=False) for name in names]
    commit, dirty = (args.commit, False) if args.commit else _head(path)
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    entries = [results_file.entry_of(report, commit, when, dirty=dirty) for report in reports]
    for entry in entries:
        results_file.append(path, entry)
    if not args.quiet:
        of = f"{commit or 'no commit'}{' with changed files' if dirty else ''}"
        print(f"{path}: {len(entries)} result{'s' * (len(entries) != 1)} of {of} added")
    return 0


def _show(path: Path, args: argparse.Namespace, settings: GateConfig) -> int:
    from advisor.gate.history import results_file, series, texts
    from advisor.inputs.output import write_file

    name = _format(args)
    entries, damaged = results_file.read(path)
    found = series.history(entries, damaged, str(path), args.metric, settings.design.margin, args.since)
    if name == "html":
        from advisor.engine import registry

        text = registry.load_named(registry.HISTORIES, "html", "format")(found)
    else:
        text = texts.as_json(found) if name == "json" else texts.as_text(found)
    if args.output is None:
        sys.stdout.write(text)
    else:
        write_file(args.output, text, replace=True)
    return found.exit_code


def _format(args: argparse.Namespace) -> str:
    chosen: Sequence[str] = args.format
    if not chosen and args.output is not None:
        chosen = [{".html": "html", ".json": "json"}.get(args.output.suffix, "text")]
    if len(chosen) > 1 or (chosen and chosen[0] not in FORMATS):
        raise UsageError(f"gate history writes one of {', '.join(FORMATS)}; {', '.join(chosen)} was requested")
    return chosen[0] if chosen else "text"


def _head(history: Path) -> tuple[str, bool]:
    """(commit of the working tree, whether files other than the history were changed); ("", False) without git."""
    try:
        commit = _git("rev-parse", "HEAD")
        return commit, bool(
            commit and _git("status", "--porcelain", "--untracked-files=no", "--", ".", f":(exclude){history}")
        )
    except OSError:
        return "", False


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
