"""`advisor rules`: every rule in one line."""

from __future__ import annotations

import argparse

from advisor.commands import _terminal


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "rules",
        help="list the rules",
        description="Lists all rules, built-in and from rule packs, and those that failed to load.",
        epilog="example: advisor rules --markdown",
        allow_abbrev=False,
    )
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Prints the list."""
    from advisor.engine.startup_gc import for_good

    with for_good():
        from advisor.engine import registry, rule_pages

        rules = registry.load_rules()
    print(rule_pages.table(rules) if args.markdown else rule_pages.listing(rules, _terminal.width()))
    return 0
