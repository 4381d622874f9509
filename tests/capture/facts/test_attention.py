"""How models of Transformers compute attention, as their modules' configurations say."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from advisor.capture.inside.facts.model.attention import of_transformers  # noqa: E402


def test_how_models_of_transformers_compute_attention() -> None:
    def module(package: str, **config: object) -> object:
        made = type("SelfAttention", (), {"__module__": f"{package}.models"})()
        made.config = SimpleNamespace(**config)  # type: ignore[attr-defined]
        return made

    theirs = module("transformers", _attn_implementation="sdpa", attention_dropout=0.1, attn_pdrop=0.0)
    eager = module("transformers", _attn_implementation="eager")
    assert of_transformers([theirs, object()]) == {"implementation": "sdpa", "dropout": ["attention_dropout"]}
    assert of_transformers([theirs, eager]) is None
    assert of_transformers([theirs, module("mine", _attn_implementation="sdpa")]) is None
    assert of_transformers([object()]) is None
