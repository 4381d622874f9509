"""A coding agent in small: a client of the MCP SDK that starts the server and calls its tools."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client

LIMIT_BYTES = 8192
Call = Callable[..., Awaitable[dict[str, Any]]]


def session(folder: Path, talk: Callable[[Call, Any], Awaitable[None]]) -> None:
    """One session with a server in `folder`; every result is checked for its size and its two sentences."""

    async def run() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=["-P", "-m", "advisor", "mcp"], cwd=folder, env=dict(os.environ)
        )
        async with Client(stdio_client(server)) as client:

            async def call(name: str, **arguments: Any) -> dict[str, Any]:
                result = await client.call_tool(name, arguments)
                assert not result.is_error, result.content
                found = result.structured_content
                assert found is not None
                assert json.loads(result.content[0].text) == found
                assert len(result.content[0].text.encode()) < LIMIT_BYTES
                assert found["next_step"] or found["cannot_answer"]
                assert (found["cannot_answer"] or "because").startswith("because")
                return found

            await talk(call, client)

    asyncio.run(run())
