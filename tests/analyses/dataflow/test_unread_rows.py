"""What two observed steps say of rows that nothing reads: torch's own observer on real steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from observed_runs import observed  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

Step = Callable[[], Any]
Found = list[tuple[str, str, float]]
TABLE, RECURRENT = nn.Embedding(50, 16), nn.LSTM(16, 16, batch_first=True)
BODY = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16))
HEAD, OTHER = nn.Linear(16, 50), nn.Linear(16, 7)
TOKENS, LABELS = torch.randint(0, 50, (8, 12)), torch.randint(0, 7, (8,))
MASK = (torch.arange(96) % 4 == 0).view(8, 12)
OF_THE_BODY = ("linear", "gelu", "layer_norm")


def cross_entropy(scores: Any, labels: Any) -> None:
    functional.cross_entropy(scores, labels).backward()


@pytest.fixture
def watch(tmp_path: Path) -> Callable[[Step], Found]:
    """Observes a step: the ops that compute rows nobody reads, what takes rows of them, and the share it takes."""

    def run(step: Step) -> Found:
        found = observed(tmp_path, step)
        return [(found.ops[op], found.ops[reader], round(read, 3)) for op, reader, read in found.seen.unread]

    return run


def test_the_last_of_all_positions(watch: Any) -> None:
    """The head is by row; the recurrent layer before it needs all positions for the last one."""
    found = watch(lambda: cross_entropy(HEAD(RECURRENT(TABLE(TOKENS))[0])[:, -1], LABELS))
    assert found == [("linear", "cross_entropy_loss", 0.083)]


def test_a_mask_of_positions(watch: Any) -> None:
    found = watch(lambda: cross_entropy(HEAD(BODY(TABLE(TOKENS)))[MASK], TOKENS[MASK]))
    assert found == [(name, "index", 0.25) for name in (*OF_THE_BODY, "linear")]


EXPERTS = nn.ModuleList(nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16)) for _ in range(3))


def mixed(weigh: Callable[[Any, int], Any], experts: int = 3) -> None:
    x, chosen = RECURRENT(TABLE(TOKENS))[0], TOKENS % 3
    out = torch.zeros_like(x)
    for number in range(experts):
        out = out + EXPERTS[number](x) * weigh(chosen, number)
    out.square().mean().backward()


def test_each_expert_computes_the_rows_of_all(watch: Any) -> None:
    """A mask of `chosen == i` leaves each row to one of them."""
    once = [("linear", "mul", 0.333), ("gelu", "mul", 0.333), ("linear", "mul", 0.333)]
    assert watch(lambda: mixed(lambda chosen, number: (chosen == number).unsqueeze(-1))) == 3 * once
    assert watch(lambda: mixed(lambda chosen, number: (chosen == number).float()[..., None])) == 3 * once


@pytest.mark.complete
def test_masks_that_may_hold_a_row_twice_leave_all_of_it(watch: Any) -> None:
    assert watch(lambda: mixed(lambda chosen, number: (chosen >= number).unsqueeze(-1))) == []
    assert (
        watch(lambda: mixed(lambda chosen, number: (chosen == 1).unsqueeze(-1))) == []
    )  # one mask: how many are in it?
    assert watch(lambda: mixed(lambda chosen, number: torch.rand(8, 12, 1))) == []
    # Tensors of one shape lie in the same memory one after the other.
    assert watch(lambda: mixed(lambda chosen, number: (torch.randint(3, (8, 12)) == number).unsqueeze(-1))) == []


def test_a_softmax_over_the_words_is_by_row(watch: Any) -> None:
    def step() -> None:
        logarithms = functional.log_softmax(HEAD(RECURRENT(TABLE(TOKENS))[0]), -1)
        functional.nll_loss(logarithms[:, -1], LABELS).backward()

    assert [(name, share) for name, _, share in watch(step)] == [("linear", 0.083), ("log_softmax", 0.083)]


def test_a_softmax_over_the_positions_is_not(watch: Any) -> None:
    assert watch(lambda: HEAD(TABLE(TOKENS)).softmax(1)[:, -1].sum().backward()) == []


@pytest.mark.parametrize(
    "use",
    [
        lambda scores: (scores.argmax(-1) == TOKENS).sum(),
        lambda scores: scores.detach().numpy().sum(),
        lambda scores: scores.tolist(),
        str,
    ],
    ids=["counted", "numpy", "list", "printed"],
)
def test_scores_that_are_also_read_in_full(watch: Any, use: Callable[[Any], Any]) -> None:
    def step() -> None:
        scores = HEAD(BODY(TABLE(TOKENS)))
        cross_entropy(scores[MASK], TOKENS[MASK])
        use(scores)

    assert watch(step) == []


def test_positions_that_are_read_one_by_one_are_all_read(watch: Any) -> None:
    def step() -> None:
        scores = HEAD(BODY(TABLE(TOKENS)))
        sum(scores[:, at].logsumexp(-1).sum() for at in range(12)).backward()

    assert watch(step) == []


def test_the_value_of_one_action_is_no_row(watch: Any) -> None:
    def step() -> None:
        values = HEAD(TABLE(TOKENS[:, 0]))
        (values[torch.arange(8), LABELS].mean() + values.gather(1, LABELS[:, None]).mean()).backward()

    assert watch(step) == []


def test_a_body_of_two_heads_is_read_by_both(watch: Any) -> None:
    """Two heads read one position each of the body, but two of their own scores; a third one would need all."""

    def step() -> None:
        hidden = BODY(TABLE(TOKENS))
        (HEAD(hidden)[:, 0].logsumexp(-1).sum() + OTHER(hidden)[:, 0].logsumexp(-1).sum()).backward()

    found = watch(step)
    assert [(name, share) for name, _, share in found] == [
        *((name, 0.167) for name in OF_THE_BODY),
        ("linear", 0.083),
        ("linear", 0.083),
    ]


def test_weights_that_are_shared_with_the_table(watch: Any) -> None:
    """A product with one matrix is by row; one of two sets of sequences is not."""

    def step() -> None:
        hidden = RECURRENT(TABLE(TOKENS))[0]
        (hidden @ TABLE.weight.T)[:, -1].sum().backward()

    assert [(name, share) for name, _, share in watch(step)] == [("matmul", 0.083)]
    assert watch(lambda: (TABLE(TOKENS) @ TABLE(TOKENS).mT)[:, 0].sum().backward()) == []


def test_what_two_activations_are_added_in_ends_a_chain(watch: Any) -> None:
    """A residual branch: no layer before the sum is told to skip positions."""

    def step() -> None:
        hidden = TABLE(TOKENS)
        mixed = functional.layer_norm(hidden + BODY(hidden), (16,))
        mixed[:, 0].sum().backward()

    assert watch(step) == [("layer_norm", "sum", 0.083)]


def test_a_result_that_is_changed_in_place_is_left_alone(watch: Any) -> None:
    assert watch(lambda: functional.relu(HEAD(TABLE(TOKENS)), inplace=True)[:, 0].sum().backward()) == []


@pytest.mark.complete
def test_a_loss_is_named_whatever_it_reads(watch: Any) -> None:
    """Its labels tell which rows it ignores; classes may be the second dimension, positions be shifted by one."""
    found = watch(lambda: cross_entropy(HEAD(TABLE(TOKENS)).float().flatten(0, 1), TOKENS.flatten()))
    assert found == [("linear", "cross_entropy_loss", 1.0)]
    found = watch(lambda: cross_entropy(HEAD(TABLE(TOKENS)).transpose(1, 2), TOKENS))
    assert found == [("linear", "cross_entropy_loss", 1.0)]
    found = watch(lambda: cross_entropy(HEAD(TABLE(TOKENS))[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten()))
    assert found == [("linear", "cross_entropy_loss", 0.917), ("flatten", "cross_entropy_loss", 1.0)]


def test_a_loss_and_another_reader_are_not_mixed(watch: Any) -> None:
    def step() -> None:
        scores = HEAD(TABLE(TOKENS))
        (functional.cross_entropy(scores.flatten(0, 1), TOKENS.flatten()) + scores[:, 0].sum()).backward()

    assert watch(step) == []
