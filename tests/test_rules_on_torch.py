"""Rules on traces that PyTorch writes here and now: found where a small training has the fault, silent without it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch_steps import Step, network, outcome

from advisor.capture.record import Optimizer, RankRecord, Settings

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def nothing(_x: Any) -> None:
    return None


def trained(
    model: Any, after: Callable[[Any], Any] = nothing, batch: int = 512, before: Callable[[Any], Any] = nothing
) -> Step:
    """A training step of the model, and something else before the weights change or after."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(batch, 64)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        before(x)
        optimizer.step()
        after(x)

    return step


def without_gradients(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return torch.no_grad()(call)  # type: ignore[no-any-return]


def test_a_second_forward_pass_is_found_and_one_under_no_grad_is_not(tmp_path: Path) -> None:
    model = network()
    again = outcome("second-forward", trained(model, before=model), tmp_path)
    assert again.status == "found"
    assert again.findings[0].facts["per_step"] == 1
    assert outcome("second-forward", trained(model, before=without_gradients(model)), tmp_path).status == "clear"
    # After the optimizer's step the weights are others, and so are the numbers.
    assert outcome("second-forward", trained(model, after=model), tmp_path).status == "clear"
    assert outcome("evaluation-with-gradients", trained(model, after=model), tmp_path).status == "found"
    assert outcome("second-forward", trained(model), tmp_path).status == "clear"


def test_an_evaluation_is_told_from_a_second_forward_by_its_shapes(tmp_path: Path) -> None:
    model, validation = network(), torch.randn(2048, 64)
    step = trained(model, lambda x: model(validation))
    assert outcome("second-forward", step, tmp_path).status == "clear"
    found = outcome("evaluation-with-gradients", step, tmp_path)
    assert found.status == "found"
    assert found.findings[0].facts["per_step"] == 1
    quiet = trained(model, without_gradients(lambda x: model(validation)))
    assert outcome("evaluation-with-gradients", quiet, tmp_path).status == "clear"
    assert outcome("evaluation-with-gradients", trained(model, before=model), tmp_path).status == "clear"


def test_losses_that_are_summed_before_one_backward_pass_are_all_followed(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = torch.randn(4, 256, 64)

    def step() -> None:
        optimizer.zero_grad()
        sum(model(x).square().mean() for x in batches).backward()
        optimizer.step()

    for rule in ("second-forward", "evaluation-with-gradients"):
        assert outcome(rule, step, tmp_path).status == "clear"


def test_stages_of_a_solver_that_are_not_used_are_no_second_forward_pass(tmp_path: Path) -> None:
    """It calls the network ten times for the result, and three times for an estimate of its error."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(128, 64)

    def step() -> None:
        optimizer.zero_grad()
        y = x
        for _ in range(10):
            y = y + 0.1 * model(y)
        for _ in range(3):
            model(y)
        y.square().mean().backward()
        optimizer.step()

    assert outcome("second-forward", step, tmp_path).status == "clear"


def test_what_a_distribution_checks_is_no_evaluation(tmp_path: Path) -> None:
    """A policy's actor and critic: the arguments are checked with gradients on, and the checks are thrown away."""
    policy = torch.nn.Linear(64, 3)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        saved = []
        for _ in range(5):
            chances = torch.distributions.Categorical(policy(torch.randn(64)).softmax(-1))
            saved.append(chances.log_prob(chances.sample()))
        torch.stack(saved).sum().backward()
        optimizer.step()

    assert outcome("evaluation-with-gradients", step, tmp_path).status == "clear"


@pytest.mark.parametrize(("dropout", "risk"), [(0.1, "semantics"), (0.0, "numerics")])
def test_attention_that_drops_out_needs_more_than_another_call_on_a_cpu(
    dropout: float, risk: str, tmp_path: Path
) -> None:
    """nn.MultiheadAttention that returns its weights runs op by op; the fused kernel for CPUs has no dropout."""
    attention = torch.nn.MultiheadAttention(64, 4, dropout=dropout)
    optimizer = torch.optim.SGD(attention.parameters(), lr=1e-3)
    x = torch.randn(128, 8, 64)

    def step() -> None:
        optimizer.zero_grad()
        attention(x, x, x)[0].square().mean().backward()
        optimizer.step()

    found = outcome("unfused-attention", step, tmp_path)
    assert found.status == "found"
    fix = found.findings[0].fix
    assert fix is not None
    assert fix.risk == risk
    assert "need_weights=False" in fix.after
    assert ("dropout=0.0" in fix.after) == (risk == "semantics")


def test_a_product_with_one_hot_vectors_is_found_and_a_loss_on_one_hot_labels_is_not(tmp_path: Path) -> None:
    functional = torch.nn.functional
    index = torch.randint(0, 5000, (64,))
    linear = torch.nn.Linear(5000, 32, bias=False)

    def product() -> None:
        linear(functional.one_hot(index, 5000).float()).square().mean().backward()

    found = outcome("one-hot-inputs", product, tmp_path)
    assert found.status == "found"
    assert found.findings[0].facts["classes"] == 5000
    assert "nn.Embedding(5000, 32)" in (found.findings[0].fix.after if found.findings[0].fix else "")

    scores = torch.nn.Linear(32, 5000)
    x = torch.randn(64, 32)

    def loss() -> None:
        (scores(x).log_softmax(1) * functional.one_hot(index, 5000).float()).sum().backward()

    assert outcome("one-hot-inputs", loss, tmp_path).status == "clear"


@pytest.mark.parametrize(
    ("rows", "sparse", "status"), [(50_000, False, "found"), (50_000, True, "clear"), (200, False, "clear")]
)
def test_dense_gradients_of_a_large_table(rows: int, sparse: bool, status: str, tmp_path: Path) -> None:
    table = torch.nn.Embedding(rows, 32, sparse=sparse)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    index = torch.randint(0, rows, (64,))

    def step() -> None:
        optimizer.zero_grad()
        table(index).square().mean().backward()
        optimizer.step()

    found = outcome("dense-embedding-gradients", step, tmp_path)
    assert found.status == status
    if status == "found":
        assert found.findings[0].facts["rows"] == rows
        assert found.findings[0].facts["touched_share"] == pytest.approx(64 / rows)


@pytest.mark.parametrize(("length", "status"), [(256, "found"), (48, "clear")])
def test_padding_beyond_the_longest_sample(length: int, status: str, tmp_path: Path) -> None:
    table = torch.nn.Embedding(100, 64, padding_idx=0)
    layer = torch.nn.TransformerEncoderLayer(64, 2, 128, batch_first=True, dropout=0.0)
    samples = [torch.randint(1, 100, (size,)) for size in (20, 31, 48)]

    def step() -> None:
        tokens = torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)
        tokens = torch.nn.functional.pad(tokens, (0, length - tokens.shape[1]))
        layer(table(tokens)).square().mean().backward()

    found = outcome("excess-padding", step, tmp_path)
    assert found.status == status
    if status == "found":
        assert found.findings[0].facts["empty_share"] == pytest.approx(1 - 48 / 256)


def test_copies_of_all_weights_are_told_from_an_average_and_from_a_checkpoint(tmp_path: Path) -> None:
    model = network(1024)
    average = copy.deepcopy(model)

    def averaged(x: Any) -> None:
        with torch.no_grad():
            for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
                ours.lerp_(theirs, 0.1)

    def saved(x: Any) -> None:
        torch.save(model.state_dict(), tmp_path / "weights.pt")

    def copied(x: Any) -> None:
        copy.deepcopy(model.state_dict())

    found = outcome("weight-copies", trained(model, copied, 8), tmp_path)
    assert found.status == "found"
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    assert found.findings[0].facts["bytes"] == pytest.approx(weights, rel=0.05)
    for other in (averaged, saved, lambda x: list(model.state_dict())):
        assert outcome("weight-copies", trained(model, other, 8), tmp_path).status == "clear"
    assert outcome("frequent-checkpoints", trained(model, saved, 8), tmp_path).status == "found"
    for other in (averaged, copied):
        assert outcome("frequent-checkpoints", trained(model, other, 8), tmp_path).status == "clear"


def compiled(model: Any, **options: Any) -> Any:
    """The model compiled without a code generator: what matters here is when and how often it is compiled."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return torch.compile(model, backend="eager", **options)


def recorded(recompiles: list[str]) -> RankRecord:
    """The record of a run, with what the compiler counted so far."""
    breaks = {str(reason): int(n) for reason, n in torch._dynamo.utils.counters["graph_break"].items()}
    return RankRecord(compile={"graph_breaks": breaks, "recompiles": recompiles})


def test_compilations_in_the_profiled_steps_are_found_and_those_before_are_not(tmp_path: Path) -> None:
    net = compiled(network(), dynamic=False)
    lengths = iter(range(8, 100))
    found = outcome("recompiles", lambda: net(torch.randn(next(lengths), 64)).sum().backward(), tmp_path, recorded([]))
    assert found.status == "found"
    assert found.findings[0].facts["per_step"] == 1
    steady = compiled(network(), dynamic=False)
    x = torch.randn(8, 64)
    assert outcome("recompiles", lambda: steady(x).sum().backward(), tmp_path).status == "clear"


def test_a_function_that_is_compiled_no_more_is_found(tmp_path: Path) -> None:
    net = compiled(network(), dynamic=False)
    for length in range(8, 20):  # more lengths than PyTorch compiles a function for
        net(torch.randn(length, 64))
    reasons = [f"0/{n}: tensor 'x' size mismatch at index 0. expected {n + 8}, actual {n + 9}" for n in range(8)]
    found = outcome("recompiles", lambda: net(torch.randn(30, 64)).sum().backward(), tmp_path, recorded(reasons))
    assert [finding.facts["functions"] for finding in found.findings] == [1]
    assert "uncompiled" in found.findings[0].message
    x = torch.randn(8, 64)  # a length that it was compiled for
    assert outcome("recompiles", lambda: net(x).sum().backward(), tmp_path, recorded(reasons)).status == "clear"


def test_a_print_cuts_a_compiled_model_in_two(tmp_path: Path) -> None:
    class Talkative(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, says: bool) -> None:
            super().__init__()
            self.first, self.second, self.says = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64), says

        def forward(self, x: Any) -> Any:
            y = self.first(x).relu()
            if self.says:
                print(end="")
            return self.second(y)

    x = torch.randn(8, 64)
    for says, status in ((True, "found"), (False, "clear")):
        net = compiled(Talkative(says))
        net(x)
        found = outcome("graph-breaks", lambda net=net: net(x).sum().backward(), tmp_path, recorded([]))  # type: ignore[misc]
        assert found.status == status
        if says:
            assert found.findings[0].facts["pieces"] == 2


def test_the_profiles_of_this_file_are_real(tmp_path: Path) -> None:
    outcome("second-forward", trained(network()), tmp_path)
    rows = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    assert sum(str(row.get("name")).startswith("ProfilerStep#") for row in rows) == 4


def test_gradients_that_no_optimizer_applies(tmp_path: Path) -> None:
    backbone, head = network(), torch.nn.Linear(1, 3)
    optimizer = torch.optim.SGD(head.parameters(), lr=1e-3)
    record = RankRecord(optimizers=[Optimizer("SGD", tensors=2)])
    x = torch.randn(64, 64)

    def step() -> None:
        optimizer.zero_grad()
        head(backbone(x)).square().mean().backward()
        optimizer.step()

    found = outcome("unused-gradients", step, tmp_path, record)
    assert found.status == "found"
    assert found.findings[0].facts["gradients"] == 2 + len(list(backbone.parameters()))
    everything = RankRecord(optimizers=[Optimizer("SGD", tensors=2 + len(list(backbone.parameters())))])
    assert outcome("unused-gradients", step, tmp_path, everything).status == "clear"
    backbone.requires_grad_(False)
    assert outcome("unused-gradients", step, tmp_path, record).status == "clear"


def test_two_networks_that_are_trained_in_turns_use_their_gradients(tmp_path: Path) -> None:
    maker, judge = torch.nn.Linear(16, 64), network()
    optimizers = [torch.optim.SGD(one.parameters(), lr=1e-3) for one in (maker, judge)]
    sizes = [len(list(one.parameters())) for one in (maker, judge)]
    record = RankRecord(optimizers=[Optimizer("SGD", tensors=size) for size in sizes])
    noise, x = torch.randn(32, 16), torch.randn(32, 64)

    def step() -> None:
        made = maker(noise)
        optimizers[1].zero_grad()
        (judge(x).mean() - judge(made.detach()).mean()).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        judge(made).mean().backward()
        optimizers[0].step()

    for rule in ("unused-gradients", "second-forward", "evaluation-with-gradients"):
        assert outcome(rule, step, tmp_path, record).status == "clear"


def test_a_network_whose_gradients_are_dropped_is_found(tmp_path: Path) -> None:
    nn = torch.nn
    maker = nn.Sequential(nn.Linear(16, 384), nn.ReLU(), nn.Linear(384, 64))
    judge = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 1))
    optimizers = [torch.optim.SGD(one.parameters(), lr=1e-3, foreach=False) for one in (maker, judge)]
    record = RankRecord(optimizers=[Optimizer("SGD", tensors=len(list(one.parameters()))) for one in (maker, judge)])
    noise, x = torch.randn(512, 16), torch.randn(512, 64)

    def step() -> None:
        made = maker(noise)
        optimizers[1].zero_grad()
        (judge(x).mean() - judge(made).mean()).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        judge(maker(noise)).mean().backward()
        optimizers[0].step()

    found = outcome("unused-gradients", step, tmp_path, record)
    assert found.status == "found"
    assert [one.facts["unread"] for one in found.findings] == [len(list(maker.parameters()))]


def test_a_thawed_teacher_that_runs_after_the_student_is_found(tmp_path: Path) -> None:
    student, teacher = network(), network(512)
    optimizer = torch.optim.SGD(student.parameters(), lr=1e-3)
    record = RankRecord(optimizers=[Optimizer("SGD", tensors=len(list(student.parameters())))])
    x = torch.randn(256, 64)

    def step() -> None:
        optimizer.zero_grad()
        answer = student(x)
        (answer - teacher(x)).square().mean().backward()
        optimizer.step()

    found = outcome("unused-gradients", step, tmp_path, record)
    assert found.status == "found"
    assert found.findings[0].facts["unread"] >= 2
    teacher.requires_grad_(False)
    assert outcome("unused-gradients", step, tmp_path, record).status == "clear"


@pytest.mark.parametrize("convolved", [False, True])
def test_gradients_of_inputs_are_no_parameters(convolved: bool, tmp_path: Path) -> None:
    nn = torch.nn
    images = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(4 * 12 * 12, 1))
    model, x = (images, torch.randn(8, 3, 16, 16)) if convolved else (network(), torch.randn(128, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    record = RankRecord(optimizers=[Optimizer("SGD", tensors=len(list(model.parameters())))])

    def step() -> None:
        optimizer.zero_grad()
        at = x.clone().requires_grad_()
        out = model(at)
        (slope,) = torch.autograd.grad(out.sum(), at, create_graph=True)
        (slope.square().mean() + out.square().mean()).backward()
        optimizer.step()

    assert outcome("unused-gradients", step, tmp_path, record).status == "clear"


@pytest.mark.parametrize(("dtype", "scaled", "status"), [("bfloat16", True, "found"), ("bfloat16", False, "clear")])
def test_loss_scaling_beside_bf16(dtype: str, scaled: bool, status: str, tmp_path: Path) -> None:
    if not hasattr(torch.amp, "GradScaler"):
        pytest.skip("this PyTorch has no GradScaler for CPUs")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    x = torch.randn(8, 64)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    record = RankRecord(settings=Settings(autocast=True, autocast_dtype=dtype))
    assert outcome("needless-loss-scaling", step, tmp_path, record).status == status
    fp16 = RankRecord(settings=Settings(autocast=True, autocast_dtype="float16"))
    assert outcome("needless-loss-scaling", step, tmp_path, fp16).status == "clear"


def test_layers_that_are_compiled_one_by_one(tmp_path: Path) -> None:
    layers = [torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU()) for _ in range(16)]
    torch._dynamo.reset()
    each = torch.nn.Sequential(*(torch.compile(layer, backend="eager") for layer in layers))
    x = torch.randn(8, 32)
    with torch._dynamo.config.patch(recompile_limit=64):
        each(x)
        found = outcome("compiled-pieces", lambda: each(x).sum().backward(), tmp_path, recorded([]))
    assert found.status == "found"
    assert found.findings[0].facts["pieces"] == len(layers)
    whole = compiled(torch.nn.Sequential(*layers))
    whole(x)
    assert outcome("compiled-pieces", lambda: whole(x).sum().backward(), tmp_path, recorded([])).status == "clear"


def test_gradients_that_are_copied_out_of_buckets_and_a_search_in_vain(tmp_path: Path) -> None:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("this PyTorch was built without gloo")
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        for options, copies, search in (
            ({"find_unused_parameters": True}, "found", "found"),
            ({"gradient_as_bucket_view": True}, "clear", "clear"),
        ):
            model = torch.nn.parallel.DistributedDataParallel(network(), **options)
            found = outcome("gradient-copies", trained(model), tmp_path)
            assert found.status == copies
            if found.findings:
                assert found.findings[0].facts["copies"] == len(list(model.parameters()))
            assert outcome("unused-parameter-search", trained(model), tmp_path).status == search
    finally:
        distributed.destroy_process_group()


def test_checkpointed_blocks_and_frozen_networks_run_no_pass_in_vain(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    frozen, block, head = network(), torch.nn.Linear(1, 32), torch.nn.Linear(32, 1)
    frozen.requires_grad_(False)
    parameters = [*block.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    record = RankRecord(optimizers=[Optimizer("SGD", tensors=len(parameters))])
    x = torch.randn(32, 64)

    def step() -> None:
        optimizer.zero_grad()
        head(checkpoint(block, frozen(x), use_reentrant=False)).mean().backward()
        optimizer.step()

    for rule in ("unused-gradients", "second-forward", "evaluation-with-gradients"):
        assert outcome(rule, step, tmp_path, record).status == "clear"


def test_a_gradient_of_a_gradient_is_followed_as_well(tmp_path: Path) -> None:
    model = network()
    x = torch.randn(32, 64, requires_grad=True)

    def step() -> None:
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        slope.square().mean().backward()

    for rule in ("second-forward", "evaluation-with-gradients"):
        assert outcome(rule, step, tmp_path).status == "clear"
