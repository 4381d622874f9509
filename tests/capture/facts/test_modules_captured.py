"""Cost by module of real scripts under capture, beside PyTorch's own counters."""

import gzip
import importlib
import json
import runpy
from collections import Counter
from pathlib import Path

import pytest
from capture_runs import SCRIPTS, capture
from tiers import complete

from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.lines import LinesTrace
from advisor.capture import record
from advisor.computed import Computed
from advisor.engine import registry
from advisor.engine.config import Config
from advisor.engine.engine import RankInput, analyse
from advisor.model import ModuleTable
from advisor.report.module_view import modules
from advisor.report.module_work import add_flops
from advisor.trace.read.load import load

torch = pytest.importorskip("torch")
flop_counter = pytest.importorskip("torch.utils.flop_counter")
pytestmark = pytest.mark.torch

SCRIPT = SCRIPTS / "modules.py"
# What no text can hold, half a character, is written out.
HOSTILE = [name.encode("utf-8", "backslashreplace").decode() for name in runpy.run_path(str(SCRIPT))["HOSTILE"]]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Captures a kind of model once; the folder with its run.json and traces."""
    done = {}

    def captured(kind: str) -> Path:
        if kind not in done:
            folder = tmp_path_factory.mktemp(kind)
            found = capture(folder, SCRIPT, kind)
            assert (found.status, found.out) == (0, "trained\n"), found.err
            assert found.rank["notes"] == []
            add_flops(found.folder, found.record)
            (found.folder / "run.json").write_text(json.dumps(found.record))
            done[kind] = found.folder
        return done[kind]

    return captured


def one_rank(folder: Path) -> RankInput:
    rank = record.read(folder / "run.json").ranks[0]
    files = {file.role: folder / file.path for file in rank.files}
    return RankInput(0, "trace", load(files["profile"]), rank, load(files["lines"]))


def table(folder: Path) -> ModuleTable:
    one = one_rank(folder)
    assert one.lines is not None
    found = modules(Computed(trace=one.trace, record=one.record, lines=LinesTrace(one.lines)), 0, one.record)
    assert found is not None
    assert found.why == ""
    return found


def usual_ops(folder: Path) -> tuple[Counter[str], int]:
    """Ops of the loop's thread, by name, in most profiled steps, and how many steps have just these."""
    [path] = (file.path for file in record.read(folder / "run.json").ranks[0].files if file.role == "profile")
    events = json.loads(gzip.decompress((folder / path).read_bytes()))["traceEvents"]
    ops = [event for event in events if event.get("cat") == "cpu_op"]
    thread = Counter(op["tid"] for op in ops).most_common(1)[0][0]
    steps = []
    for step in (event for event in events if event.get("name", "").startswith("ProfilerStep#")):
        inside = [op for op in ops if op["tid"] == thread and 0 <= op["ts"] - step["ts"] < step["dur"]]
        steps.append(frozenset(Counter(op["name"] for op in inside).items()))
    [(usual, count)] = Counter(steps).most_common(1)
    return Counter(dict(usual)), count


def counted(kind: str) -> dict[str, float]:
    """Operations of one forward by path, as torch.utils.flop_counter counts them."""
    FlopCounterMode = flop_counter.FlopCounterMode  # noqa: N806
    script = runpy.run_path(str(SCRIPT))
    model = script["model_of"](kind)
    try:
        importlib.import_module("torch.utils.module_tracker")
        mode = FlopCounterMode(display=False, depth=None)
    except ImportError:  # torch before 2.4 counts for modules that it is given
        mode = FlopCounterMode(model, display=False, depth=None)
    with mode as counter:
        model(script["batch"](kind, 4))
    found = {name: sum(of.values()) for name, of in counter.get_flop_counts().items()}
    return {name.partition(".")[2] or name: work for name, work in found.items() if name != "Global"}


@pytest.mark.parametrize("kind", ["transformer", *complete("cnn")])
def test_operations_are_those_that_pytorch_counts(run, kind: str) -> None:
    attention = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    if kind == "transformer" and attention not in getattr(flop_counter, "flop_registry", {}):
        pytest.skip("this torch does not count the operations of attention on a CPU")
    rows = {row.path: row for row in table(run(kind)).rows if row.calls}
    wanted = counted(kind)
    assert sum(wanted.values()) > 0
    assert {path: rows[path].flops for path in wanted} == wanted
    assert all(row.flops == 0 for path, row in rows.items() if path not in wanted)


@pytest.mark.parametrize("kind", ["transformer", *complete("two", "cnn", "hostile")])
def test_times_lie_within_each_other_and_in_the_step(run, kind: str) -> None:
    found = table(run(kind))
    rows = [row for row in found.rows if row.calls]
    rank = one_rank(run(kind))
    profiled = len(rank.record.steps.profiled_us)
    # Before torch 2.4 times are whole microseconds: which of two short ops lies in the other is not always told.
    rounded = not (rank.trace.events.dur_ns % 1000).any()
    assert 0 < found.steps <= profiled
    # A step may be left out for other ops than the rest (a busy machine may record one without some), or because it is
    # longer than others by more than un-profiled ones differ; else none is.
    usual, alike = usual_ops(run(kind))
    slow = len(Computed(trace=rank.trace, record=rank.record).get(Steps).stalls_us)
    assert rounded or found.steps >= alike - slow, usual
    assert all(0 < row.forward_own_us <= row.forward_us for row in rows)
    assert all(row.low_us <= row.high_us for row in rows)
    roots = [row for row in rows if row.path in ("Transformer", "Cnn", "Generator", "Critic", "Hostile")]
    assert sum(row.forward_own_us for row in rows) == pytest.approx(sum(row.forward_us for row in roots))
    assert 0 < sum(row.share for row in roots) < 1
    assert all(row.backward_us for row in roots)
    assert all(row.backward_us for row in rows if row.parameters)


def test_parts_of_a_transformer(run) -> None:
    rows = {row.path: row for row in table(run("transformer")).rows}
    assert rows["layers.0.self_attn"].backward_us > 0
    # Its weights are read by the attention itself: the forward of this one never runs.
    assert rows["layers.0.self_attn.out_proj"].forward_us is None
    assert rows["layers.1"].parameters == rows["layers.1"].parameter_bytes / 4
    folded = {(row.path, row.members, row.depth) for row in table(run("transformer")).folded}
    assert {("Transformer", 1, 0), ("layers.0-1", 2, 1), ("layers.0-1.self_attn", 2, 2), ("head", 1, 1)} <= folded


def test_two_models_with_modules_of_the_same_names(run) -> None:
    rows = {row.path: row for row in table(run("two")).rows}
    assert rows["Generator.main.0"].flops == 2 * 4 * 8 * 64
    assert rows["Critic.main.0"].flops == 2 * 4 * 32 * 16
    assert rows["Generator"].parameters == 8 * 64 + 64 + 64 * 32 + 32
    listed = record.read(run("two") / "run.json").ranks[0].model["modules"]
    work = {row["path"]: row["flops"] for row in listed}
    # Forward and both gradients, as capture counts them.
    assert work["Generator.main.2"] == 3 * 2 * 4 * 64 * 32
    assert work["Critic.main.0"] == 3 * 2 * 4 * 32 * 16
    assert work["Generator"] == work["Generator.main"] == work["Generator.main.0"] + work["Generator.main.2"]


@pytest.mark.complete
def test_names_that_mean_something_elsewhere(run) -> None:
    """They come through the trace as they are, and through the page as text."""
    rows = {row.path: row for row in table(run("hostile")).rows}
    assert list(rows) == ["Hostile", *HOSTILE]
    assert {row.flops for row in rows.values()} == {2 * 4 * 8 * 8, 11 * 2 * 4 * 8 * 8}
    report = analyse([one_rank(run("hostile"))], registry.load_rules(), Config())
    assert report.modules is not None
    page = registry.load_reporter("html")(report).replace("<wbr>", "")  # where a long name may break
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert(1)" not in page
    assert "\u202e" not in page


def test_a_model_that_is_being_made_is_passed_over():
    from advisor.capture.inside.facts.model.model_facts import paths

    half = torch.nn.Linear.__new__(torch.nn.Linear)  # its __init__ has not run yet
    whole = torch.nn.Sequential(torch.nn.Linear(2, 2))
    found = paths([half, whole, whole[0]], list(whole.parameters()))
    assert found == {id(whole): "Sequential", id(whole[0]): "0"}
