"""`advisor setup --agent NAME`: registers the MCP server and the skill in a project."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "setup",
        help="register the MCP server and the skill with a coding agent",
        description="Shows which files it would add to this project for a coding agent: a skill, and one entry in the "
        "MCP server configuration. Writes them only with --yes. Keeps other entries.",
        epilog="example: advisor setup --agent claude --yes",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--agent", required=True, choices=("claude", "codex", "cursor", "copilot"), help="the coding agent"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(), metavar="DIR", help="project folder (default: the current one)"
    )
    parser.add_argument("--yes", action="store_true", help="write the files")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Prints the plan, and with --yes carries it out."""
    from importlib.util import find_spec

    from advisor.agents import setup_files
    from advisor.errors import UsageError
    from advisor.inputs.output import write_file

    if not args.folder.is_dir():
        raise UsageError(f"--folder {args.folder}: no such folder")
    planned = setup_files.plan(args.agent, args.folder, sys.executable)
    for one in planned:
        verb = {"new": "new", "same": "unchanged", "changed": "changed"}[one.state]
        print(f"{verb}: {one.path}" + (f" ({one.note})" if one.state == "changed" else ""))
        if one.state != "same":
            print(textwrap.indent(one.shown, "  "))
        if args.yes and one.state != "same":
            # A configuration is merged; another text than ours is kept beside it.
            write_file(one.path, one.text, replace=one.path.name != "SKILL.md")
    if find_spec("mcp") is None:
        print("`advisor mcp` needs an extra package: pip install 'torch-advisor[mcp]'")
    if all(one.state == "same" for one in planned):
        print("nothing to write")
    else:
        print("written" if args.yes else "nothing was written; add --yes to write")
    return 0
