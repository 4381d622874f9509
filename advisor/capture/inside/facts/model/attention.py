"""How Transformers models compute attention: their configuration chooses, so that no line of the script calls it."""

from __future__ import annotations

from typing import Any

# As configurations of various models name the dropout of attention weights.
_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop", "attn_dropout")


def of_transformers(modules: list[Any]) -> dict[str, Any] | None:
    """What their configuration says; None unless all attention modules are theirs and choose the same."""
    named = [one for one in modules if "attention" in type(one).__name__.lower()]
    if not named or not all(type(one).__module__.startswith("transformers.") for one in named):
        return None
    configs = {id(one): one for one in (getattr(module, "config", None) for module in named) if one is not None}
    chosen = {getattr(config, "_attn_implementation", None) for config in configs.values()}
    dropout = {name for config in configs.values() for name in _DROPOUT if getattr(config, name, 0)}
    implementation = chosen.pop() if len(chosen) == 1 else None
    return {"implementation": implementation, "dropout": sorted(dropout)} if implementation else None
