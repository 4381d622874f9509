"""The gate's result as JSON: the source of every other output, for programs."""

from __future__ import annotations

import msgspec

from advisor.gate.model import Result


def render(result: Result) -> str:
    """The document, indented, ending in a newline; `exit_code` stands beside the verdict."""
    document = msgspec.to_builtins(result)
    document["exit_code"] = result.exit_code
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
