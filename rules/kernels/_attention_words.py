"""Fixes of attention in the words of Transformers, whose models choose it by their configuration."""

from __future__ import annotations

from advisor.api import Fix, Settings

_DROPOUT = "attention_probs_dropout_prob"  # as most configurations name it


def in_transformers(settings: Settings | None, fix: Fix, *, no_dropout: bool) -> Fix:
    """The fix as the model's configuration has it; as it is where the script computes attention itself.

    no_dropout: the fused kernel at hand has no dropout, so that the model must not ask for it
    """
    own = settings.attention if settings else None
    if own is None or own.implementation not in ("eager", "sdpa"):
        return fix
    zeros = [f"{name}=0.0" for name in own.dropout or [_DROPOUT]] if no_dropout else []
    chosen = ['attn_implementation="sdpa"'] if own.implementation == "eager" else []
    words = [*chosen, *zeros]
    if not words:
        return fix
    before = ", ".join(['attn_implementation="eager"'] if chosen else [zeros[0].replace("0.0", "0.1")])
    title = " and ".join(f"`{word}`" for word in words)
    return Fix(
        f"Set {title} where the model is made",
        fix.risk,
        f"model = AutoModel.from_pretrained(name, {before})",
        f"model = AutoModel.from_pretrained(name, {', '.join(words)})\n"
        "# likewise with from_config(config, …) and in the arguments of a configuration",
    )
