"""A treatment as an edit of the script: the arguments of one call, or a call that goes. All other characters stay.

`ast` knows where every call and argument stands, to the column; what lies between them is never written again. So the
user's formatting and comments stay, without a library that parses and prints whole files.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.fixing import framework_calls, origins, source_text
from advisor.fixing.origins import Origins
from advisor.fixing.source_text import Argument, Change, Text, arguments_of, text_of
from advisor.model import Treatment

_OPTIMIZERS = ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "NAdam", "RAdam", "ASGD", "Adamax")
# Arguments that may be given without their names, as torch declares them.
_LOADER = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory",
           "drop_last", "timeout", "worker_init_fn", "multiprocessing_context")  # fmt: skip
_PARALLEL = ("module", "device_ids", "output_device", "dim", "broadcast_buffers", "process_group", "bucket_cap_mb",
             "find_unused_parameters", "check_reduction", "gradient_as_bucket_view")  # fmt: skip
# Arguments that a loader without workers refuses.
_OF_WORKERS = ("persistent_workers", "prefetch_factor", "multiprocessing_context")
_BOM = "\ufeff"


class NoEditError(Exception):
    """Why a treatment cannot be written into this file."""


@dataclass(frozen=True, slots=True)
class _File:
    """What an edit needs of a file. lines: those that the finding names."""

    text: Text
    tree: ast.AST
    origins: Origins
    lines: Collection[int]


def edit(source: str, lines: Collection[int], treatment: Treatment) -> str:
    """The source with the treatment written into the call at one of these lines, or into the only such call.

    Raises NoEditError where there is no such call, or several of which none stands at these lines.
    """
    if source.startswith(_BOM):
        return _BOM + edit(source.removeprefix(_BOM), lines, treatment)
    make = _EDITS.get(treatment.name)
    if make is None:
        raise NoEditError("edit it by hand: the report has the lines")
    tree, text = _parsed(source), text_of(source)
    changed = text.data
    for start, end, new in sorted(make(_File(text, tree, origins.of_tree(tree), lines), treatment), reverse=True):
        changed = changed[:start] + new + changed[end:]
    done = changed.decode()
    _parsed(done)
    return done


def _parsed(source: str) -> ast.AST:
    try:
        return ast.parse(source)
    except SyntaxError as failure:
        where = f", line {failure.lineno}" if failure.lineno else ""
        raise NoEditError(f"cannot be parsed ({failure.msg}{where})") from failure
    except (ValueError, RecursionError, MemoryError) as failure:  # a null byte; brackets within brackets
        raise NoEditError(f"cannot be parsed ({failure})") from failure


def _loader(file: _File, treatment: Treatment) -> list[Change]:
    call = _call(file, ("DataLoader",))
    wanted = dict(treatment.arguments)
    given = _given(call, _LOADER)
    if "num_workers" not in wanted and any(name in wanted for name in _OF_WORKERS) and not _has_workers(given):
        raise NoEditError("this DataLoader has no workers")
    if "pin_memory" in wanted and "pin_memory" in given and file.origins.set_elsewhere(given["pin_memory"]):
        del wanted["pin_memory"]  # a variable of the script says whether there is a device
    # A loader without workers refuses what only workers need.
    needless = () if wanted.get("num_workers", 1) else _OF_WORKERS
    return _with_arguments(file, call, wanted, needless, _LOADER)


def _has_workers(given: Mapping[str, ast.expr]) -> bool:
    """Unless the call says otherwise: a loader has none by default."""
    workers = given.get("num_workers")
    return workers is not None and not (isinstance(workers, ast.Constant) and not workers.value)


def _batch(file: _File, treatment: Treatment) -> list[Change]:
    size = treatment.arguments.get("size")
    if size is None:
        raise NoEditError("the batch size must be a number, not a factor")
    call = _call(file, ("DataLoader",))
    if "batch_sampler" in _given(call, _LOADER):
        raise NoEditError("the batch size is that of the batch sampler")
    return _with_arguments(file, call, {"batch_size": size}, (), _LOADER)


def _optimizer(file: _File, treatment: Treatment) -> list[Change]:
    other = "foreach" if "fused" in treatment.arguments else "fused"
    return _with_arguments(file, _call(file, _OPTIMIZERS), treatment.arguments, (other,))


def _parallel(file: _File, treatment: Treatment) -> list[Change]:
    call = _call(file, ("DistributedDataParallel", "DDP"))
    return _with_arguments(file, call, treatment.arguments, (), _PARALLEL)


def _framework_call(file: _File, treatment: Treatment) -> list[Change]:
    """Arguments of a framework's own class, as `framework_calls.OwnCall.edit` holds them."""
    of, names = treatment.arguments, treatment.arguments["names"]
    call = _call(file, names, of["packages"])
    given = _given(call, ())
    for name, values in of["instead"].items():
        if name in given and not any(_is(given[name], value) for value in values):
            raise NoEditError(f"`{name}` is {ast.unparse(given[name])}, which is another choice")
    for name in of["undone"]:
        if name not in given:
            raise NoEditError(f"{_named(call)}() is not given `{name}`")
    return _with_arguments(file, call, of["arguments"], of["without"])


def _threads(file: _File, treatment: Treatment) -> list[Change]:
    if set(treatment.arguments) != {"count"}:
        raise NoEditError("threads of loader workers are set in a worker_init_fn")
    call = _call(file, ("set_num_threads",))
    if len(call.args) != 1 or call.keywords or isinstance(call.args[0], ast.Starred):
        raise NoEditError("set_num_threads() is called in an unsupported way")
    return [_replaced(file, "the number of threads", call.args[0], treatment.arguments["count"])]


def _set_to_none(file: _File, _treatment: Treatment) -> list[Change]:
    changes = []
    for call in _calls(file.tree):
        if _named(call) != "zero_grad" or not file.text.holds(call):
            continue
        arguments = arguments_of(file.text, call)
        kept = [place for place, one in enumerate(arguments) if one.name in (None, "set_to_none") and _is_false(one)]
        changes += source_text.without(file.text, arguments, kept)
    if not changes:
        raise NoEditError("no call of zero_grad(set_to_none=False)")
    return changes


def _is_false(one: Argument) -> bool:
    return isinstance(one.value, ast.Constant) and one.value.value is False


def _calls_out(file: _File, treatment: Treatment) -> list[Change]:
    """Statements that are nothing but such a call go; `pass` stays where a block would be empty."""
    names = treatment.arguments["names"]
    found = [
        (block, place)
        for block in _blocks(file.tree)
        for place, statement in enumerate(block)
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and file.origins.dotted(statement.value.func) in names
    ]
    near = [(block, place) for block, place in found if block[place].lineno in file.lines]
    if not near and len(found) != 1:
        calls = " or ".join(f"{name}()" for name in sorted(names))
        raise NoEditError(f"{len(found)} lines are nothing but {calls}" if found else f"no line is nothing but {calls}")
    going = {id(block[place]) for block, place in near or found}
    return [_statement_out(file.text, block, place, going) for block, place in near or found]


def _statement_out(text: Text, block: list[ast.stmt], place: int, going: Collection[int]) -> Change:
    """One statement goes, with its line where that holds nothing else. going: every statement that goes."""
    start, end = text.span(block[place])
    first, last = text.line_start(start), text.line_end(end)
    if all(id(one) in going for one in block):
        return start, end, b"pass"
    if not text.data[first:start].strip() and not text.data[end:last].strip():
        return first, last, b""
    if place + 1 < len(block) and text.span(block[place + 1])[0] < last:
        return start, text.span(block[place + 1])[0], b""
    return start, end, b"pass"


def _in_float32(file: _File, _treatment: Treatment) -> list[Change]:
    """Every `.double()` becomes `.float()`, every `torch.float64` and `torch.double` `torch.float32`."""
    called = [
        call.func
        for call in _calls(file.tree)
        if _named(call) == "double" and not call.args and isinstance(call.func, ast.Attribute)
    ]
    changes = [_renamed(file.text, one, "float") for one in called]
    changes += [
        _renamed(file.text, node, "float32")
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Attribute)
        and file.origins.dotted(node) in ("torch.float64", "torch.double")
        and node not in called
    ]
    if not changes:
        raise NoEditError("no call of double() and no torch.float64")
    return changes


def _kept_on_device(file: _File, _treatment: Treatment) -> list[Change]:
    """`total += loss.item()` at one of the lines becomes `total += loss.detach()`."""
    found = [
        node.value.func
        for node in ast.walk(file.tree)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "item"
        and not node.value.args
        and node.lineno in file.lines
    ]
    if not found:
        raise NoEditError("no sum of items (`total += loss.item()`) at the lines of the finding")
    return [_renamed(file.text, one, "detach") for one in found]


def _renamed(text: Text, node: ast.Attribute, name: str) -> Change:
    _, end = text.span(node)
    start, old = end - len(node.attr.encode()), node.attr.encode()
    if text.data[start:end] != old:
        raise NoEditError(f"`{node.attr}` at line {node.lineno} stands where it cannot be changed")
    return start, end, name.encode()


_EDITS: dict[str, Callable[[_File, Treatment], list[Change]]] = {
    "batch": _batch,
    "calls": _calls_out,
    "ddp": _parallel,
    framework_calls.EDIT: _framework_call,
    "in_float32": _in_float32,
    "kept_on_device": _kept_on_device,
    "loader": _loader,
    "optimizer": _optimizer,
    "set_to_none": _set_to_none,
    "threads": _threads,
}

# Treatments that can be written into a script, and changes that are nothing but edits.
NAMES = tuple(_EDITS)


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _named(call: ast.Call) -> str:
    name: str = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return name


def _blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    fields = ("body", "orelse", "finalbody")
    values = (getattr(node, name, None) for node in ast.walk(tree) for name in fields)
    return [value for value in values if isinstance(value, list)]


def _call(file: _File, names: Sequence[str], packages: Sequence[str] = ()) -> ast.Call:
    """The call of torch's, or of these packages', class or function at one of the lines, else the only one there is."""
    calls = [
        call
        for call in _calls(file.tree)
        if (file.origins.of_packages(call.func, names, packages) if packages else file.origins.torchs(call.func, names))
    ]
    near = [call for call in calls if any(call.lineno <= line <= (call.end_lineno or 0) for line in file.lines)]
    one = (near or calls)[0] if len(near or calls) == 1 else None
    if one is None:
        others = [file.origins.dotted(call.func) or _named(call) for call in _calls(file.tree) if _named(call) in names]
        if not calls and others:
            whose = f"that of {packages[0]}" if packages else "torch's"
            raise NoEditError(f"{_named_of(others)} is not {whose}")
        raise NoEditError(f"{len(near or calls)} calls of {' or '.join(names)}: it is not known which one")
    if not file.text.holds(one):
        raise NoEditError(f"{_named(one)}() at line {one.lineno} stands in a text, where it cannot be changed")
    return one


def _named_of(others: Sequence[str]) -> str:
    return " or ".join(dict.fromkeys(others))


def _given(call: ast.Call, positional: Sequence[str]) -> dict[str, ast.expr]:
    """The call's arguments by name. Raises NoEditError where some of them are not written out."""
    if any(keyword.arg is None for keyword in call.keywords):
        raise NoEditError(f"{_named(call)}() takes its arguments from a dictionary")
    if any(isinstance(one, ast.Starred) for one in call.args):
        raise NoEditError(f"{_named(call)}() takes its arguments from a list")
    by_place = dict(zip(positional, call.args, strict=False))
    return by_place | {keyword.arg or "": keyword.value for keyword in call.keywords}


def _with_arguments(
    file: _File, call: ast.Call, wanted: Mapping[str, Any], without: Collection[str], positional: Sequence[str] = ()
) -> list[Change]:
    """Each argument's value where it is given, else in the place of one that goes, else behind the last argument."""
    given, text = _given(call, positional), file.text
    changes = [
        _replaced(file, f"`{name}`", given[name], value)
        for name, value in wanted.items()
        if name in given and not _is(given[name], value)
    ]
    new = [f"{name}={value!r}".encode() for name, value in wanted.items() if name not in given]
    arguments = arguments_of(text, call)
    gone = [place for place, one in enumerate(arguments) if one.name in without]
    for place in gone[: len(new)]:
        changes.append((arguments[place].start, arguments[place].end, new.pop(0)))
    more = [place for place in gone if all(start != arguments[place].start for start, _, _ in changes)]
    changes += source_text.without(text, arguments, more)
    return changes + (_appended(text, call, arguments, new) if new else [])


def _appended(text: Text, call: ast.Call, arguments: Sequence[Argument], new: Sequence[bytes]) -> list[Change]:
    """Behind the last argument, on lines of their own where it has one; behind the bracket where there is none."""
    end, together = text.span(call)[1], b", ".join(new)
    if not arguments:
        return [(end - 1, end - 1, together)]
    last = arguments[-1]
    if last.end == end:  # a generator without brackets of its own: `SGD(p for p in parameters)`
        return [(last.start, last.start, b"("), (end, end, b", " + together + b")")]
    if text.has_own_line(last):
        return source_text.on_own_lines(text, last, new)
    return [(last.end, last.end, b", " + together)]


def _is(value: ast.expr, wanted: Any) -> bool:
    """Whether it already is what is wanted."""
    return isinstance(value, ast.Constant) and type(value.value) is type(wanted) and value.value == wanted


def _replaced(file: _File, what: str, value: ast.expr, new: Any) -> Change:
    if file.origins.set_elsewhere(value):
        raise NoEditError(f"{what} is `{ast.unparse(value)}`: set that to {new!r}")
    return (*file.text.span(value), repr(new).encode())
