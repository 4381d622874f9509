"""`advisor explain RULE`: the rule's page and its thresholds."""

from __future__ import annotations

import argparse

from advisor.commands import _terminal


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "explain",
        help="print the documentation of a rule",
        description="Prints the documentation of a rule and its thresholds.",
        epilog="example: advisor explain small-batch",
        allow_abbrev=False,
    )
    parser.add_argument("rule", metavar="RULE", help="a rule id; `advisor rules` lists them")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Prints the page; a wrong id is a usage error that names the nearest one."""
    from advisor.engine.config import known
    from advisor.engine.startup_gc import for_good

    with for_good():
        from advisor.engine import registry, rule_pages

        rules = registry.load_rules().by_id()
    known(args.rule, rules, "rule")
    print(rule_pages.page(rules[args.rule], _terminal.width()))
    return 0
