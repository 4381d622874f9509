"""A step takes longer than the team allows.

## What it looks at
The time of one training step.

## Why it costs time
The team has agreed on a budget per step.

## How to fix it
Look at the other findings first.

## When to leave it
On a debugging machine.
"""

from collections.abc import Iterator

from advisor.api import Example, Finding, Scale, draw

CONFIRMED = "the team's own decision"


def check(
    scale: Scale,
    *,
    budget_us: float = 500.0,  # agreed in the team
) -> Iterator[Finding]:
    if scale.step_us > budget_us:
        yield Finding(f"a step takes {scale.step_us:.0f} µs, more than the {budget_us:.0f} µs that the team allows")


EXAMPLES = [
    Example(
        "over the budget",
        draw(
            """
            step   [1         ][2         ]
            cpu    [F ]         [F ]
            """,
            us=100,
        ),
        saves_us="unknown",
    ),
    Example(
        "within the budget",
        draw(
            """
            step   [1         ][2         ]
            cpu    [F ]         [F ]
            """,
            us=10,
        ),
        saves_us=None,
    ),
]
