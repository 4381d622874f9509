"""The cell magic `%%advisor`, which `%load_ext advisor` brings."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, NoReturn

from advisor.errors import AdvisorError, UsageError
from advisor.library.profile import Profile, profile


class _Parser(argparse.ArgumentParser):
    """Its errors are ours: argparse would end the kernel."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; options: {self.format_usage().partition(' ')[2].strip()}")


def load(shell: Any) -> None:
    """Registers the magic with an IPython shell."""

    def magic(line: str, cell: str) -> Profile:
        """Profiles the training steps of this cell: %%advisor [--steps N] [--warmup N] [--output FOLDER] [NAME]"""
        from IPython.core.error import UsageError as Mistake  # shown as one line

        try:
            args = _parser().parse_args(shlex.split(line))
            made = profile(steps=args.steps, warmup=args.warmup, output=args.output)
        except (AdvisorError, ValueError) as failure:
            raise Mistake(f"%%advisor: {failure}") from None
        # As the cell is shown its first line is that of the magic: lines are to be named as they are numbered there.
        source = "\n" + shell.transform_cell(cell)
        code = compile(source, shell.compile.cache(source, _number(shell), raw_code=source), "exec")
        with made:
            exec(code, shell.user_ns)
        if args.name:
            shell.user_ns[args.name] = made
        return made

    shell.register_magic_function(magic, "cell", "advisor")


def _number(shell: Any) -> int:
    """Of the cell that runs: the newest that was compiled. `execution_count` is already that of the next one."""
    known: dict[str, int] = getattr(shell.compile, "_filename_map", {})
    return max(known.values(), default=int(shell.execution_count))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%advisor", add_help=False)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--warmup", type=int)
    parser.add_argument("--output")
    parser.add_argument("name", nargs="?")
    return parser
