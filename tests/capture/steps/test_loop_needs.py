"""Whether turns of a loop need each other, by the text around the line that calls the model."""

from __future__ import annotations

import ast

import pytest

from advisor.capture.inside.steps.loop_needs import turns_apart


def apart(text: str) -> bool | None:
    """Of the line that holds `model(`."""
    lines = text.strip("\n").splitlines()
    at = next(number for number, line in enumerate(lines, 1) if "model(" in line)
    found = turns_apart(ast.parse("\n".join(lines)), at)
    return None if found is None else found[2]


@pytest.mark.parametrize(
    "text",
    [
        "for x, y in zip(xs, ys):\n    hits += model(x).item() > 0\n",
        "for row in rows:\n    losses.append(criterion(model(row), 1))\n",
        "for at in range(9):\n    out[at] = model(xs[at])\n",
        "for x in xs:\n    if skip(x):\n        continue\n    p = model(x)\n    self.total += p.mean()\n",
        "for x in xs: scores.append(model(x))\n",
        "def f(xs):\n    return torch.stack([model(x) for x in xs])\n",
        "for batch in loader:\n    for x in batch:\n        with no_grad():\n            p = self.model(x)\n"
        "        self.metric.update(p)\n".replace("self.model(", "model("),
    ],
)
def test_samples_by_themselves(text: str) -> None:
    assert apart(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "while not done:\n    a = model(seen)\n    seen, done = env.step(a)\n",
        "for t in range(20):\n    a = model(env.look())\n    env.step(a)\n",
        "for t in range(20):\n    a = model(seen)\n    seen, r, over = env.step(a)\n    if over:\n        break\n",
        "for _ in range(20):\n    tokens = torch.cat([tokens, model(tokens)[:, -1:]], 1)\n",
        "for x in xs:\n    h = model(x, h)\n",
        "for t in range(9):\n    out[:, t + 1] = model(out[:, : t + 1])\n",
        "for t in range(9):\n    p = model(x)\n    x = x - p * dt\n",
        "for x in xs:\n    if model(x) > best:\n        break\n",
        "for x in queue:\n    p = model(x)\n    queue.extend(children(p))\n",
    ],
)
def test_a_turn_that_needs_the_one_before(text: str) -> None:
    assert apart(text) is False


def test_a_call_outside_of_loops() -> None:
    assert apart("for x in xs:\n    pass\ny = model(x)\n") is None
    assert apart("for x in xs:\n    def f():\n        return model(1)\n") is None
