"""`advisor tune [options] script args…`: searches batch size, workers, precision and the like for throughput."""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.commands import _options, _script, run

if TYPE_CHECKING:
    from advisor.gate.pairs import Side
    from advisor.trying.tune_result import Tuned

_EPILOG = """examples:
  advisor tune train.py --epochs 3
  advisor tune --budget 30m --knobs batch,workers train.py
  advisor tune --knobs batch,optimizer --knobs 'loader:prefetch_factor=2|8' train.py
"""
_BUDGET_S = 1200.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    try_ = import_module("advisor.commands.try")
    parser = subparsers.add_parser(
        "tune",
        help="search batch size, workers, precision and similar settings for throughput",
        usage="advisor tune [options] SCRIPT ARGS…",
        description="Compares settings of a training script with the unchanged script, in pairs like `advisor try`, "
        "and prints the best one, its gain and the lines to change. Needs Optuna (extra `tune`).",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--budget", type=try_.seconds, default=_BUDGET_S, metavar="TIME", help="time limit (default: 20m)"
    )
    parser.add_argument(
        "--knobs", action="append", default=[], metavar="NAME,…",
        help="search only these; also optimizer, or name:argument=value|value",
    )  # fmt: skip
    parser.add_argument("--mode", choices=("lockstep", "blocks"), help="default: lockstep if memory allows")
    parser.add_argument("--python", metavar="PATH", help="Python interpreter for the script (default: this one)")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FOLDER", help="write tune.json and tune.html to this folder"
    )
    _options.add_common_options(parser)
    parser.set_defaults(handler=tune, target=[])
    _script.take_target(parser)


def tune(args: argparse.Namespace) -> int:
    """Searches, prints and writes; 0 also where nothing is faster."""
    from advisor.gate.ab import end_in_order
    from advisor.gate.pairs import Side
    from advisor.gate.turns import environment
    from advisor.inputs.output import write_file
    from advisor.places import script_file
    from advisor.trying import tune_result
    from advisor.trying.tuning import check_optuna

    check_optuna()
    end_in_order()
    target = run.target_of(args.target, args.python)
    base = Side("base", tuple(target.command), Path.cwd(), environment(), "the script as it is")
    tuned, failure = _searched(args, base)
    script = script_file.started(target.command, Path.cwd())
    text = "\n".join(tune_result.as_text(tuned, script)) + "\n"
    print(text, end="")
    if args.output:
        write_file(args.output / "tune.json", json.dumps(tune_result.as_data(tuned), indent=2) + "\n", replace=True)
        write_file(args.output / "tune.html", tune_result.as_page(tuned, text), replace=True)
    if failure is not None:
        raise failure
    return 0


def _searched(args: argparse.Namespace, base: Side) -> tuple[Tuned, BaseException | None]:
    """What was found, and what ended it early."""
    import os
    import random
    import time
    from dataclasses import replace

    from advisor.trying.knobs import of_words
    from advisor.trying.pairing import layout_of, measurer, of_one_version, telling
    from advisor.trying.patched import Mirrors, scratch
    from advisor.trying.session import Session
    from advisor.trying.tune_result import Tuned
    from advisor.trying.tuning import Search, rates

    say = import_module("advisor.commands.try").say(args)
    began = time.monotonic()
    layout, cost, files = layout_of(base, args.mode)
    # A setting is looked at with pairs of a third of the length; what is said of it in the end, with whole ones.
    third = replace(layout, turns=layout.turns // 3)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    words = [word for value in args.knobs for word in value.split(",") if word]
    knobs = of_words(words, cores, on_device=layout.on_device)
    say(f"knobs: {', '.join(knob.name for knob in knobs)}; about {args.budget / cost.of_pair(third):.0f} pairs fit")
    with scratch() as folder:
        short, full = (
            telling(of_one_version(measurer(one, random.Random(), say), files), say) for one in (third, layout)
        )
        session = Session(base, short, args.budget, say, side_of=Mirrors(Path(folder)).side, began=began)
        search = Search(session, knobs)
        chosen, trial, failure = search.best(), None, None
        try:
            chosen, trial = search.run(full)
        except (Exception, KeyboardInterrupt, SystemExit) as ended:
            if not search.points:
                raise
            chosen, failure = search.best(), ended
    banned = {f"{knob} {label}": why for (knob, label), why in search.banned.items()}
    today = search.today()
    points, curve = rates(search.points.values(), today), rates(search.curve(chosen.setting), today)
    return Tuned(chosen, trial, tuple(points), tuple(curve), banned, time.monotonic() - began), failure
