"""The data set lies on a disk of another machine.

## What it looks at
Nothing: a rule of a part of a family, for the tests of packs, with names that advisor.api had before.

## Why it costs time
It does not.

## How to fix it
Leave it.

## When to leave it
Always.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import TURNS, Finding, Price, Undilated


def check(price: Price, undilated: Undilated) -> Iterator[Finding]:
    """Never finds anything where the former names are what they were."""
    if price.undilated is not undilated or undilated.plain_us <= 0 or TURNS != 16:
        yield Finding("a former name is another thing")
