"""`advisor gate`: performance regressions kept out, by exact counters and by step time measured side by side."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path

from advisor.errors import UsageError

_EXAMPLES = """examples:
  advisor gate base/report.json head/report.json        two stored reports, no torch needed
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "gate",
        help="compare a change with its base: pass, regression, inconclusive or not comparable",
        description="Keeps performance regressions out. Exit status: 0 pass, 1 regression, 2 usage, 3 inconclusive, "
        "not comparable or no baseline, 4 a measured script failed, 70 internal error.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("words", nargs="*", metavar="BASE HEAD", help="two stored reports")
    from advisor.commands._options import add_common_options
    from advisor.gate.outputs import add_options

    add_options(parser)
    add_common_options(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Runs the gate that the words ask for; returns its exit status."""
    return _stored(args, args.words)


def _stored(args: argparse.Namespace, words: Sequence[str]) -> int:
    from advisor import config
    from advisor.gate import files, outputs, stored
    from advisor.gate.config import parse

    if len(words) != 2:
        raise UsageError(f"gate needs two reports, BASE.json and HEAD.json; {len(words)} given")
    outputs.formats_of(args)
    settings = parse(config.find(Path.cwd()).gate)
    base, head = Path(words[0]), Path(words[1])
    before, after = files.read_report(base, baseline=True), files.read_report(head, baseline=False)
    result = stored.compare_reports(before, after, (str(base), str(head)), settings, datetime.date.today())
    outputs.write(result, args)
    return result.exit_code
