"""What two observed steps say of ops that computed what was there already: torch's own observer on real steps."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from capture_runs import capture  # noqa: E402
from observed_runs import observed  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from advisor.analyses.dataflow.judged_steps import JudgedSteps  # noqa: E402
from advisor.analyses.dataflow.reused import Reused  # noqa: E402
from advisor.capture.record import read  # noqa: E402
from advisor.computed import Computed  # noqa: E402
from advisor.trace.read.load import load  # noqa: E402

Step = Callable[[], Any]
NET = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))
DATA, TABLE = torch.randn(40, 6), torch.randn(6)


@pytest.fixture
def watch(tmp_path: Path) -> Callable[[Step], tuple[list[str], list[str]]]:
    """Observes a step; the names of the ops that computed something again, and of those whose result is constant."""

    def run(step: Step) -> tuple[list[str], list[str]]:
        found = observed(tmp_path, step)
        assert [path.name for path in tmp_path.iterdir()] == ["dataflow.gz"]
        return [found.ops[at] for at, _ in found.seen.again], [found.ops[at] for at in found.seen.constant]

    return run


def optimized() -> Iterator[None]:
    """Weights that change between two passes, as a discriminator's do."""
    optimizer = torch.optim.SGD(NET.parameters(), lr=0.1)
    while True:
        optimizer.zero_grad()
        yield
        optimizer.step()


def test_a_pass_that_runs_twice(watch: Any) -> None:
    """Of the second pass everything is there already; its parts that only look at a tensor anew are no work."""

    def step() -> None:
        x = DATA[torch.randperm(40)[:8]]
        (NET(x.view(8, 6)).sum() + NET(x).mean()).backward()

    assert watch(step) == (["linear", "relu", "linear"], ["ones_like"])


def test_other_weights_or_other_inputs_are_another_pass(watch: Any) -> None:
    def trained_between() -> None:
        x, turns = DATA[torch.randperm(40)[:8]], optimized()
        for _ in range(2):
            next(turns)
            NET(x).sum().backward()
        next(turns)

    def microbatches() -> None:
        x = DATA[torch.randperm(40)[:8]]
        for part in (x[:4], x[4:]):
            NET(part).sum().backward()

    assert watch(trained_between)[0] == ["ones_like"]  # with which each backward pass begins
    assert watch(microbatches)[0] == ["ones_like"]


def test_dropout_draws_anew_and_evaluation_does_not(watch: Any) -> None:
    dropping = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 4))

    def step() -> None:
        x = DATA[torch.randperm(40)[:8]]
        (dropping(x).sum() + dropping(x).sum()).backward()

    assert watch(step)[0] == ["linear"]
    dropping.eval()
    assert watch(step)[0] == ["linear", "linear", "sum"]


def test_running_statistics_make_two_passes_different(watch: Any) -> None:
    """The second pass changes them once more: leaving it out would change the script."""
    normalised = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 4))

    def step() -> None:
        x = DATA[torch.randperm(40)[:8]]
        (normalised(x).sum() + normalised(x).mean()).backward()

    assert watch(step) == (["linear"], ["ones_like"])
    normalised.eval()
    assert watch(step)[0] == ["linear", "batch_norm", "linear"]


def test_numbers_of_the_script_are_not_seen_and_prove_nothing(watch: Any) -> None:
    """x * 2 and x * 4 look alike to the observer; so do tensors that Python's numbers or NumPy's arrays became."""
    numpy = pytest.importorskip("numpy")

    def step() -> None:
        x = DATA[torch.randperm(40)[:8]]
        total = sum((x * 2**octave).sin().sum() for octave in range(4))
        for turn in range(4):
            total += torch.tensor([float(turn)] * 6).exp().sum()
            total += torch.from_numpy(numpy.full(6, turn, numpy.float32)).exp().sum()

    assert watch(step) == ([], [])


def test_elements_of_a_batch_are_no_numbers_of_the_script(watch: Any) -> None:
    """A tensor of one element looks like a number; where an op picked it from a batch, it changes with that."""

    def step() -> None:
        classes = torch.randint(0, 3, (6,))
        for one in range(6):
            _ = [other for other in range(6) if classes[other] == classes[one]]

    assert watch(step) == ([], [])


def test_what_autocast_converts_anew_in_each_region(tmp_path: Path) -> None:
    """Weights of one region are converted once; what is no weight is at each use, as what is the same at each."""
    state = DATA[torch.randperm(40)[:8]]
    square = nn.Linear(6, 6)

    def apart() -> None:
        turned = state
        for _ in range(3):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                turned = square(turned)
        turned.sum().backward()

    def together() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            (square(square(state)) + square(state)).sum().backward()

    run = observed(tmp_path, apart)
    named = [(run.ops[at], run.ops[first], first) for at, _, first, _ in run.seen.casts]
    first = run.ops.index("linear")
    assert named == [("linear", "linear", first)] * 4  # weight and bias, in the second and third turn
    assert run.seen.again == []
    run = observed(tmp_path, together)
    # The third layer computes what the first one had; its cast of the state goes with it.
    assert ([run.ops[at] for at, _ in run.seen.again], run.seen.casts) == (["linear"], [])


def test_a_closure_that_is_called_beside_the_optimizer(tmp_path: Path) -> None:
    """Steps begin at the backward pass, so that a pass is repeated in the step behind; its numbers are the same."""
    optimizer = torch.optim.SGD(NET.parameters(), lr=0.1)
    turn: dict[str, Any] = {}

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (2.0 * NET(turn["x"])).square().mean()
        turn["loss"] = loss
        if turn["go"]:
            loss.backward()
        return loss

    def step() -> None:
        if "loss" in turn:
            turn["loss"].backward()
            turn["go"] = True
            optimizer.step(closure)
        turn.update(x=DATA[torch.randperm(40)[:8]], go=False)
        closure()

    run = observed(tmp_path, step)
    pairs = [(run.ops[at], first) for at, first in run.seen.again]
    wanted = ["linear", "relu", "linear", "mul", "square", "mean"]
    assert [name for name, _ in pairs if name in wanted] == wanted
    assert [first for name, first in pairs if name in wanted] == [-6, -5, -4, -3, -2, -1]


def test_an_optimizer_that_asks_twice_for_a_loss_needs_it(tmp_path: Path) -> None:
    """What repeats between two calls of a closure by the optimizer is the optimizer's own business."""
    weight = torch.nn.Parameter(torch.randn(6))

    class Asks(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            closure()
            closure()
            return super().step()

    optimizer = Asks([weight], lr=0.1)

    def step() -> None:
        x = DATA[torch.randperm(40)[:8]]
        optimizer.zero_grad()

        def closure() -> Any:
            loss = (x * weight).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)

    run = observed(tmp_path, step)
    assert [run.ops[at] for at, _ in run.seen.again if run.ops[at] != "ones_like"] == []


def test_what_one_call_of_a_closure_repeats_is_told(tmp_path: Path) -> None:
    """Lightning runs the whole training step as the optimizer's closure."""
    weight = torch.nn.Parameter(torch.randn(6))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step() -> None:
        x = DATA[torch.randperm(40)[:8]]

        def closure() -> Any:
            optimizer.zero_grad()
            loss = (x * weight).mean() + (x * weight).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)

    run = observed(tmp_path, step)
    assert [run.ops[at] for at, _ in run.seen.again if run.ops[at] != "ones_like"] == ["mul"]


def test_activations_that_a_checkpoint_computes_again_are_its_purpose(watch: Any) -> None:
    def step() -> None:
        x = DATA[torch.randperm(40)[:8]].requires_grad_()
        checkpoint(NET, x, use_reentrant=False).sum().backward()

    assert watch(step)[0] == []


def test_a_weight_that_is_built_at_each_use(watch: Any) -> None:
    orthogonal = nn.utils.parametrizations.orthogonal(nn.Linear(6, 6, bias=False), orthogonal_map="cayley")

    def step() -> None:
        state = DATA[torch.randperm(40)[:8]]
        for _ in range(3):
            state = orthogonal(state)
        state.sum().backward()

    again, constant = watch(step)
    assert again.count("linalg_solve") == again.count("tril") == 2
    assert "linear" not in again
    assert constant.count("eye") == 3


def test_constants_are_what_no_step_changes(watch: Any) -> None:
    """Factories, frozen weights, tables; not weights that are trained, what is drawn, written, or read elsewhere."""
    frozen = nn.Linear(6, 6).requires_grad_(False)
    written, at = torch.zeros(6), itertools.count()

    def step() -> None:
        grid = torch.arange(12).view(3, 4).to(torch.float32)
        table = frozen(TABLE) + torch.stack([grid.sum(0), grid.cos().mean(0)]).sum()
        part = DATA[next(at) : next(at) + 4].exp()
        written.add_(1)
        (NET(DATA[torch.randperm(40)[:8]] + table).sum() + written.sin().sum() + part.sum()).backward()
        for weight in NET.parameters():
            weight.data -= 0.1 * weight.grad
            (weight * weight).sum()

    again, constant = watch(step)
    assert again == []
    assert constant == ["arange", "to", "linear", "sum", "cos", "mean", "stack", "sum", "add", "ones_like"]


def test_results_that_are_written_over_are_needed_anew(watch: Any) -> None:
    """Room that starts from zeros, and is then filled, cannot be kept; a mask that is finished in place can."""

    def step() -> None:
        rooms = [torch.zeros(4) for _ in range(3)]
        for room in rooms[:2]:
            room[1] = NET(DATA[torch.randperm(40)[:8]]).sum()
        mask = torch.ones(4, 4)
        mask.fill_diagonal_(0)
        (rooms[0] + rooms[1] + rooms[2] + mask).sum().backward()

    again, constant = watch(step)
    assert again == []
    assert constant == ["zeros", "ones", "fill_diagonal_", "ones_like"]


SCRIPT = """
import sys, torch
from torch import nn
torch.manual_seed(0)
data, encoder, head = torch.rand(1000, 8), nn.Linear(8, 4), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
for batch in torch.utils.data.DataLoader(data, batch_size=4):
    table = torch.linspace(0, 1, 4).cos()
    optimizer.zero_grad()
    loss = (head(encoder(batch) * table) + encoder(batch).sum()).sum()
    loss.backward()
    optimizer.step()
print(loss.item())
print("over", file=sys.stderr)
"""


def test_a_run_leaves_a_small_record_and_no_word(tmp_path: Path) -> None:
    """A file of what ops read, of which the report tells what was there already; no message of the observer."""
    script = tmp_path / "twice.py"
    script.write_text(SCRIPT)
    done = capture(tmp_path / "out", script)
    assert (done.status, done.err) == (0, "over\n")
    assert len(json.dumps(done.rank["dataflow"])) < 500
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".gz", ".gz", ".gz", ".json"]
    [record] = read(tmp_path / "out" / "run.json").ranks
    profile = next(file.path for file in record.files if file.role == "profile")
    known = Computed(trace=load(done.folder / profile), record=record)
    seen = known.get(JudgedSteps).seen
    if "this version of torch" in seen.why:
        pytest.skip(seen.why)
    named = [seen.names[at] for at in seen.ops]
    assert [(named[at], named[first]) for at, first in seen.again] == [("aten::linear", "aten::linear")]
    assert [named[at] for at in seen.constant] == ["aten::linspace", "aten::cos", "aten::ones_like"]
    assert known.get(Reused).share == 1.0  # the profiled steps ran the same ops in the same order
