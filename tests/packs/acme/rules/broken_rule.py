"""A rule that always fails.

## What it looks at
Nothing.

## Why it costs time
It does not.

## How to fix it
Mend it.

## When to leave it
Never.
"""

from advisor.api import Steps


def check(steps: Steps):
    raise ZeroDivisionError("one rule broke")
    yield
