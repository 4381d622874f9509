"""What only the text of the script's files tells: a single call, a switch that is an attribute, where a number is from.

Nothing is guessed: a place is named where one is found, and none where there are several.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from . import penalty_interval
from .file_digests import digests, own_files
from .syntax import constant, given, last_name, parsed, read_names
from .text_settings import ARGUMENTS, FIRST_COUNTS, FIRST_OF, VALUES, WORDS, is_set, of_value, settings_of

Place = dict[str, Any]  # file, line, function: the keys of `record.CodePlace`

# Files of the script that are looked through, and how long all of them may be: to parse and walk 507 kB of the standard
# library took 0.16 s of CPU time (one core of an EPYC, Python 3.11).
_MOST_FILES, _MOST_BYTES = 50, 1 << 19
# What the name of a class ends with that holds the options of a Trainer.
_ARGUMENTS = "TrainingArguments"
# Of a DataLoader's arguments.
_POSITIONS = {"dataset": 0, "batch_size": 1, "num_workers": 5}
# Names of a batch's size: `batch_size`, `train_batch_size`, `per_device_batch`, `BATCH`; not those of an evaluation.
_BATCH_SIZE = re.compile(r"(?!.*(eval|val|test))(\w+_)?(batch(_?size)?|bs|bsz)", re.IGNORECASE)
# How often the script evaluates and saves: the name of a number (`eval_every`, `val_check_interval`, `save_steps`), and
# arguments of frameworks, whatever they are given.
_OFTEN = r"(\w*_)?({})\w*_(every|interval|freq|frequency|period|steps)(_n_epochs?)?"
_INTERVALS = {
    "evaluation_every": (
        re.compile(_OFTEN.format("eval|val|test"), re.IGNORECASE),
        ("val_check_interval", "check_val_every_n_epoch", "eval_steps", "eval_strategy"),
    ),
    "checkpoint_every": (
        re.compile(_OFTEN.format("save|ckpt|checkpoint|snapshot"), re.IGNORECASE),
        ("every_n_train_steps", "save_steps", "save_strategy"),
    ),
}
_SAYS_OFTEN = re.compile("every|interval|freq|period|steps|strategy", re.IGNORECASE)
# How often a number may pass from one name to another: `args.batch_size` to `bs` to `batch_size`.
_MOST_NAMES = 3


class ScriptText:
    """The text of the script's files that are imported, read once, each file looked through once for each question.

    foreign   folders of code that is not the user's
    """

    def __init__(self, foreign: tuple[str, ...]) -> None:
        self.foreign = foreign
        self.numbers: dict[tuple[int, str, str, int], Place] = {}

    @cached_property
    def sources(self) -> dict[str, str]:
        """The text of each file, as run.json names it; read while the script runs, since its modules go at its end.

        The file that was started comes first, and all of them are no longer than the limit.
        """
        found: dict[str, str] = {}
        room = _MOST_BYTES
        for file, path in own_files(self.foreign).items():
            text = _text(path) if path.endswith(".py") and len(found) < _MOST_FILES else ""
            if text and len(text) <= room:
                found[file] = text
                room -= len(text)
        return found

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file, read when the text is."""
        return digests(own_files(self.foreign))

    def read(self) -> None:
        """Reads the files now, if nothing has asked for them yet."""
        _ = self.sources, self.digests

    def tree(self, file: str) -> ast.Module | None:
        """The tree of one file, as run.json names it."""
        return parsed(self.sources.get(file, ""))

    def trees(self, *words: str) -> Iterator[tuple[str, ast.Module]]:
        """(file, its tree) of every file in which one of these words occurs."""
        for file, text in self.sources.items():
            if any(word in text for word in words) and (tree := parsed(text)) is not None:
                yield file, tree

    def nodes(self, *words: str) -> Iterator[tuple[str, ast.AST]]:
        """(file, node) of these files."""
        for file, tree in self.trees(*words):
            yield from ((file, node) for node in ast.walk(tree))

    def settings(self) -> dict[str, Place]:
        """The lines of settings that only the text tells, as `Settings.set_at` names them."""
        lines: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for file, node in self.nodes(*WORDS):
            for name, at in settings_of(node):
                lines[name].add((file, at.lineno))  # type: ignore[attr-defined]
            for name, one in self._followed(node):
                lines[name].add((one.file, one.line))
        # A call of `.double()` says more than a mention of float64, a switch more than a call of what it switches on.
        known: dict[str, Iterable[tuple[str, int]]]
        known = {FIRST_OF.get(name, name): at for name, at in sorted(lines.items(), key=lambda one: one[0] in FIRST_OF)}
        found = {
            name: _only(sorted(at)[:1] if name in FIRST_COUNTS else at) for name, at in known.items() if is_set(name)
        }
        found |= {"penalty_every": self.penalty_interval(), **self.batch_sizes(), **self.intervals()}
        return {name: place for name, place in found.items() if place}

    def values(self, set_at: Mapping[str, Place]) -> dict[str, Place]:
        """Where the value that a setting's line takes from a name stands: `threads value` of `threads`.

        The only line that gives that name, or one that it is given, a value that makes the setting: an assignment, the
        default of an argument, of an option or of a field. Nothing of a line that has the value itself.
        """
        found = {f"{name} value": self._value(name, place) for name, place in set_at.items() if name in VALUES}
        return {name: place for name, place in found.items() if place}

    def _value(self, setting: str, line: Place) -> Place:
        functions, counts = VALUES[setting]
        calls = (one for one in self._around(line) if last_name(one.func) in functions)
        passed = next((value for one in calls for value in (*one.args, *(word.value for word in one.keywords))), None)
        passed = passed or self._put(line)
        if passed is None or isinstance(passed, ast.Constant):
            return {}
        return _only((one.file, one.line) for one in self._behind(passed) if counts(one.value))

    def _put(self, line: Place) -> ast.expr | None:
        """What the assignment at a line assigns."""
        tree = self.tree(line["file"])
        nodes = ast.walk(tree) if tree else ()
        return next((one.value for one in nodes if isinstance(one, ast.Assign) and one.lineno == line["line"]), None)

    def _followed(self, node: ast.AST) -> Iterator[tuple[str, _Given]]:
        """The settings whose argument is given a name, by what that name is given: `attn_implementation=args.attn`."""
        for argument, value, _ in given(node):
            if argument in ARGUMENTS and not isinstance(value, ast.Constant):
                known = ((of_value(argument, one.value), one) for one in self._behind(value) if one.value is not None)
                yield from ((name, one) for name, one in known if name)

    def batch_sizes(self) -> dict[str, Place]:
        """Where a name such as `batch_size` is given a number, by that number: `batch_size 8`; once in all files."""
        places: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for one in self._given if any("batch" in text for text in self.sources.values()) else ():
            if one.number and _BATCH_SIZE.fullmatch(one.name):
                places[f"batch_size {one.number}"].add((one.file, one.line))
        return {name: _only(at) for name, at in places.items()}

    def intervals(self) -> dict[str, Place]:
        """Where it is said how often the script evaluates and saves.

        The only line that gives such a name a number; else the only one that gives a framework's argument anything.
        """
        given = self._given if any(map(_SAYS_OFTEN.search, self.sources.values())) else ()
        found: dict[str, Place] = {}
        for setting, (numbers, arguments) in _INTERVALS.items():
            ways = [[one for one in given if one.number and numbers.fullmatch(one.name)]]
            ways += [[one for one in given if one.name == name] for name in arguments]
            places = (_only((one.file, one.line) for one in way) for way in ways)
            found[setting] = next(filter(None, places), {})
        return found

    def training_arguments(self) -> Place:
        """The only call of Transformers' TrainingArguments or of a class named after it; empty where several are."""
        calls = (one for one in self.nodes(_ARGUMENTS) if isinstance(one[1], ast.Call))
        return _only((file, node.lineno) for file, node in calls if last_name(node.func).endswith(_ARGUMENTS))  # type: ignore[attr-defined]

    def called(self, name: str) -> Place:
        """The only call of a class or function of this name; empty where there is none, or are several."""
        calls = (one for one in self.nodes(name) if isinstance(one[1], ast.Call)) if name else ()
        return _only((file, node.lineno) for file, node in calls if last_name(node.func) == name)  # type: ignore[attr-defined]

    def penalty_interval(self) -> Place:
        """Where the interval of a gradient penalty is given the number 1; empty if none is, or several are."""
        if not any(penalty_interval.WORD in text for text in self.sources.values()):
            return {}
        every = penalty_interval.names(node for _, node in self.nodes(""))
        return _only((one.file, one.line) for one in self._given if one.name in every and one.number == 1)

    def registered(self, name: str) -> Place:
        """Where a module registers the buffer or parameter of that name, or makes it an attribute; empty if unknown."""
        nodes = self.nodes(name)
        return _only((file, node.lineno) for file, node in nodes if _registers(node, name))  # type: ignore[attr-defined]

    def number(self, value: int, argument: str, call: Place) -> Place:
        """Where the number that a call is given for an argument stands as a number in the text; empty where unknown.

        call: the line in the call.  It may be the call itself, or what the name that is passed there was given: in an
        assignment, as the default of an argument or of a command-line option, by keyword, in a dictionary that may be
        unpacked in the call.
        """
        if not call:
            return {}
        key = (value, argument, call["file"], call["line"])
        if key not in self.numbers:
            self.numbers[key] = self._number(value, argument, call)
        return self.numbers[key]

    def _number(self, value: int, argument: str, call: Place) -> Place:
        passed = self._passed(argument, call)
        if passed is None:
            return {}
        if _number(passed) == value:
            return _place(call["file"], passed.lineno)
        return _only((one.file, one.line) for one in self._behind(passed) if one.number == value)

    def _behind(self, passed: ast.expr) -> list[_Given]:
        """What the name that is passed is given, and the names that it is given."""
        names = read_names(passed)
        given = self._given if names else []
        for _ in range(_MOST_NAMES):
            names |= {one.other for one in given if one.name in names and one.other}
        return [one for one in given if one.name in names]

    def passed_at(self, argument: str, call: Place) -> Place:
        """The line of a loader's argument in a call of several lines; empty where it is given at the call's first."""
        passed = self._passed(argument, call) if call else None
        line = getattr(passed, "lineno", None)  # what is unpacked has none
        return _place(call["file"], line) if line is not None and line != call["line"] else {}

    def switched_off(self, argument: str, call: Place) -> Place:
        """Where an argument of the call at a line is given False: what it is passed, or in a line of its own there."""
        named = (word for one in (self._around(call) if call else ()) for word in one.keywords if word.arg == argument)
        passed = next((word.value for word in named), None)
        if passed is None:
            return {}
        if not isinstance(passed, ast.Constant):
            return _only((one.file, one.line) for one in self._behind(passed) if one.value is False)
        return _place(call["file"], passed.lineno) if passed.value is False and passed.lineno != call["line"] else {}

    def dataset(self, call: Place) -> Place:
        """Where the dataset that a loader is given is made: the call that is passed, or assigned to the name passed.

        call: the line in the call of the loader. Empty where the name is given anything else, or more than once.
        """
        passed = self._passed("dataset", call) if call else None
        made = passed if isinstance(passed, ast.Call) else self._assigned(passed, call)
        return _place(call["file"], made.lineno) if isinstance(made, ast.Call) else {}

    def options(self, call: Place) -> Place:
        """Where the arguments that the call of a loader unpacks, `**options`, are put together; empty if not one place.

        call: as of `dataset`.
        """
        around = self._around(call) if call else []
        loader = next((node for node in around if "DataLoader" in last_name(node.func)), None)
        unpacked = [one.value for one in loader.keywords if one.arg is None] if loader else []
        made = self._assigned(unpacked[0], call) if len(unpacked) == 1 else None
        collects = isinstance(made, ast.Dict) or (isinstance(made, ast.Call) and last_name(made.func) == "dict")
        return _place(call["file"], made.lineno) if made is not None and collects else {}

    def _assigned(self, name: ast.expr | None, call: Place) -> ast.expr | None:
        """What a name or an attribute is assigned in the file of a call; None where that is not one thing."""
        if not isinstance(name, ast.Name | ast.Attribute):
            return None
        read, tree = ast.dump(name), self.tree(call["file"])
        given = [node for node in (ast.walk(tree) if tree else ()) if isinstance(node, ast.Assign | ast.AnnAssign)]
        found = [one.value for one in given if read in map(_as_read, _targets(one))]
        return found[0] if len(found) == 1 else None

    def _around(self, call: Place) -> list[ast.Call]:
        """The calls around a line, the innermost first."""
        tree = self.tree(call["file"])
        calls = [node for node in (ast.walk(tree) if tree else ()) if isinstance(node, ast.Call)]
        around = [node for node in calls if _covers(node, call["line"])]
        return sorted(around, key=lambda one: (one.end_lineno or one.lineno) - one.lineno)

    @cached_property
    def _given(self) -> list[_Given]:
        """What every name of the files is given."""
        found = ((file, one) for file, node in self.nodes("") for one in given(node))
        return [_Given(name, file, at.lineno, last_name(value), constant(value)) for file, (name, value, at) in found]

    def _passed(self, argument: str, call: Place) -> ast.expr | None:
        """What the innermost call around a line is given for an argument of a loader, by keyword or by position."""
        for node in self._around(call):
            named = [keyword.value for keyword in node.keywords if keyword.arg == argument]
            if named or "DataLoader" in last_name(node.func):
                at = _POSITIONS[argument]
                # What is unpacked there, `**config["loader"]`, gives it by its own name.
                unpacked = [ast.Name(argument) for keyword in node.keywords if keyword.arg is None]
                return next(iter(named or node.args[at : at + 1] or unpacked), None)
        return None


class _Given(NamedTuple):
    """What a name is given at a line: another name, a constant, or anything else."""

    name: str
    file: str
    line: int
    other: str
    value: object

    @property
    def number(self) -> int | None:
        """The whole number that it is given."""
        return self.value if type(self.value) is int else None


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as text:
            return text.read(_MOST_BYTES)
    except (OSError, ValueError):
        return ""


def _place(file: str, line: int) -> Place:
    return {"file": file, "line": line, "function": ""}


def _only(places: Iterable[tuple[str, int]]) -> Place:
    """The place (file, line) that all of these are; empty where they are several, or none."""
    found = set(places)
    return _place(*found.pop()) if len(found) == 1 else {}


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _as_read(target: ast.expr) -> str:
    """What a name or an attribute that is assigned looks like where it is read."""
    return ast.dump(target).replace("Store()", "Load()")


def _number(node: ast.AST) -> int | None:
    """The whole number that it is; None of anything else."""
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _covers(node: ast.Call, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _registers(node: ast.AST, name: str) -> bool:
    """Whether it is `self.register_buffer("<name>", …)` or `self.<name> = …`."""
    if isinstance(node, ast.Call):
        first = node.args[0] if node.args else None
        named = isinstance(first, ast.Constant) and first.value == name
        return named and last_name(node.func) in ("register_buffer", "register_parameter")
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Attribute) and target.attr == name for target in node.targets
    )
