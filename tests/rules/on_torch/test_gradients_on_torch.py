"""Gradients that nobody applies, that are copied, or that are dense, on traces that PyTorch writes here and now."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_steps import network, outcome, trained

from advisor.capture.record import Optimizer, RankRecord

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]


@pytest.mark.parametrize(
    ("rows", "sparse", "status"), [(50_000, False, "found"), (50_000, True, "clear"), (200, False, "clear")]
)
@pytest.mark.parametrize("kind", ["Embedding", "EmbeddingBag"])
def test_dense_gradients_of_a_large_table(kind: str, rows: int, sparse: bool, status: str, tmp_path: Path) -> None:
    table = getattr(torch.nn, kind)(rows, 32, sparse=sparse)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    index = torch.randint(0, rows, (8, 8))

    def step() -> None:
        optimizer.zero_grad()
        table(index).square().mean().backward()
        optimizer.step()

    found = outcome("dense-embedding-gradients", step, tmp_path)
    assert found.status == status
    if status == "found":
        assert found.findings[0].facts["rows"] == rows
        assert found.findings[0].facts["touched_share"] == pytest.approx(64 / rows)


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
        judge.requires_grad_(False)
        judge(made).mean().backward()
        judge.requires_grad_(True)
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
        judge.requires_grad_(False)
        judge(maker(noise)).mean().backward()
        judge.requires_grad_(True)
        optimizers[0].step()

    found = outcome("unused-gradients", step, tmp_path, record)
    assert found.status == "found"
    assert [one.facts["unread"] for one in found.findings] == [len(list(maker.parameters()))]


@pytest.mark.parametrize("judges", ["thawed", "frozen", "shared"])
def test_a_network_that_a_loss_goes_through_is_found(judges: str, tmp_path: Path) -> None:
    """The judge gets gradients from the maker's loss, too, unless it is frozen; shared: both losses' are used."""
    nn = torch.nn
    maker = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 64))
    judge = nn.Sequential(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 1))
    optimizers = [torch.optim.SGD(one.parameters(), lr=1e-3, foreach=False) for one in (maker, judge)]
    record = RankRecord(optimizers=[Optimizer("SGD", tensors=len(list(one.parameters()))) for one in (maker, judge)])
    noise, x = torch.randn(512, 16), torch.randn(512, 64)

    def step() -> None:
        made = maker(noise)
        optimizers[1].zero_grad()
        (judge(x).mean() - judge(made.detach()).mean()).backward()
        if judges != "shared":
            optimizers[1].step()
        optimizers[0].zero_grad()
        judge.requires_grad_(judges != "frozen")
        judge(made).mean().backward()
        judge.requires_grad_(True)
        optimizers[0].step()
        if judges == "shared":
            optimizers[1].step()

    found = outcome("unused-gradients", step, tmp_path, record)
    assert found.status == ("found" if judges == "thawed" else "clear")
    if judges == "thawed":
        (finding,) = found.findings
        assert finding.facts["unread"] == len(list(judge.parameters()))
        assert "goes through a network" in finding.message
        assert finding.saving.low_us > 0


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


@pytest.mark.parametrize("attack", ["backward", "grad", "read", "added"])
def test_a_pass_that_is_run_for_its_input(attack: str, tmp_path: Path) -> None:
    model, x = network(), torch.randn(128, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    weights = list(model.parameters())
    record = RankRecord(optimizers=[Optimizer("SGD", tensors=len(weights))])

    def step() -> None:
        if attack == "added":
            optimizer.zero_grad()
        at = x.clone().requires_grad_()
        for _ in range(2):
            at = at.detach().requires_grad_()
            loss = model(at).square().mean()
            if attack == "grad":
                (slope,) = torch.autograd.grad(loss, at)
            else:
                loss.backward()
                slope = at.grad
            at = at + 0.1 * slope.sign()
        if attack == "read":
            torch.stack([one.grad.norm() for one in weights]).sum()
        if attack != "added":
            optimizer.zero_grad()
        model(at.detach()).square().mean().backward()
        optimizer.step()

    found = outcome("unused-gradients", step, tmp_path, record)
    assert found.status == ("found" if attack == "backward" else "clear")
    assert [one.facts["unread"] for one in found.findings] == [len(weights)] * (attack == "backward")


def test_rows_of_a_sparse_gradient_are_applied(tmp_path: Path) -> None:
    table, head = torch.nn.Embedding(5000, 32, sparse=True), torch.nn.Linear(32, 8)
    optimizers = [torch.optim.SparseAdam(table.parameters()), torch.optim.AdamW(head.parameters(), fused=True)]
    record = RankRecord(optimizers=[Optimizer("SparseAdam", tensors=1), Optimizer("AdamW", tensors=2)])

    def step() -> None:
        for one in optimizers:
            one.zero_grad()
        head(table(torch.randint(0, 5000, (64,)))).square().mean().backward()
        for one in optimizers:
            one.step()

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


@pytest.mark.parametrize("use", ["nothing", "read", "penalty"])
def test_a_batch_that_asks_for_gradients(use: str, tmp_path: Path) -> None:
    """Its gradient is for nothing where no op reads it; a slope that is asked for needs the batch to have one."""
    model, data = network(), torch.randn(512, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    record = RankRecord(optimizers=[Optimizer("SGD", tensors=len(list(model.parameters())))])

    def step() -> None:
        optimizer.zero_grad()
        at = data[torch.randperm(512)[:128]].requires_grad_()
        out = model(at)
        loss = out.square().mean()
        if use == "penalty":
            (slope,) = torch.autograd.grad(out.sum(), at, create_graph=True)
            loss = loss + slope.square().mean()
        loss.backward()
        if use == "read":
            at.grad.abs().max()
        optimizer.step()

    found = outcome("unused-gradients", step, tmp_path, record)
    assert found.status == ("found" if use == "nothing" else "clear")
    assert [one.facts["unread"] for one in found.findings] == ([1] if use == "nothing" else [])


@pytest.mark.parametrize(("take", "status"), [("select", "found"), ("slice", "found"), ("unbind", "clear")])
def test_gradients_of_parts_that_are_taken_one_by_one(take: str, status: str, tmp_path: Path) -> None:
    given = torch.randn(4, 48, 64, 16, requires_grad=True)

    def gradient(take: str) -> torch.Tensor:
        given.grad = None
        decays, state = given.sigmoid(), torch.zeros(4, 64, 16)
        parts = decays.unbind(1) if take == "unbind" else None
        for at in range(48):
            part = parts[at] if parts else decays[:, at] if take == "select" else decays[:, at : at + 1].squeeze(1)
            state = part * state + part
        state.sum().backward()
        assert given.grad is not None
        return given.grad.clone()

    found = outcome("gradients-of-parts", lambda: gradient(take), tmp_path)
    assert found.status == status
    if status == "found":
        assert found.findings[0].facts["parts"] == 48
        # Sums with zeros are exact: the fix changes no digit.
        assert torch.equal(gradient(take), gradient("unbind"))
