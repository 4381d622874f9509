"""The table of docs/what-if.md, made of the hardware table itself.

python tests/tools/hardware_page.py           prints the table
python tests/tools/hardware_page.py --renew   writes it
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from advisor.hardware import Hardware, models

PAGE = Path(__file__).parents[2] / "docs" / "what-if.md"
MARK = "<!-- hardware -->"  # everything behind it in the page is replaced


def table() -> str:
    """Every device whose rates are known, with the paper that they are from."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "| device | fp32 | TF32 | fp16 | bf16 | fp8 | memory | host link | peers | from |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
    for row in models():
        cells = (row.fp32_tflops, row.tf32_tflops if row.tf32 else None, *_half(row), row.fp8_tflops)
        links = (row.bandwidth_gbs, row.bus_gbs, row.peer_gbs)
        numbers = " | ".join("–" if cell is None else f"{cell:,g}" for cell in (*cells, *links))
        yield f"| {row.model} | {numbers} | {row.source} |"


def _half(row: Hardware) -> tuple[float | None, float | None]:
    return (row.tflops("fp16") if row.fp16 else None, row.tflops("bf16") if row.bf16 else None)


def page() -> str:
    """The page with its table made anew."""
    return PAGE.read_text("utf-8").split(MARK)[0] + f"{MARK}\n\n{table()}"


if __name__ == "__main__":
    if "--renew" in sys.argv:
        PAGE.write_text(page(), "utf-8")
    else:
        sys.stdout.write(table())
