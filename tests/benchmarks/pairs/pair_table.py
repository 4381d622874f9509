"""The table of promised against measured savings, and the figures that sum it up.

Counted are pairs whose measured interval lies above zero; a pair whose interval holds zero counts neither way. A
promise is the saving of a finding, as a share of the report's own step time. *Found*: a declared rule has a finding on
slow.py. *Silent*: that rule has none on fixed.py that promises 2 % of the step or more. *Line*: the
finding's costliest place is a line of slow.py that holds a declared text.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
MATERIAL = 0.02  # of the step: what a healthy script must stay below
CONTROL_LIMIT = 0.015  # of the step: the most that a popular fix without effect may be promised
PROMISE, KEPT_AT_LEAST = 0.05, 0.0  # a promise of 5 % or more that gives nothing back is a wrong one


def findings(advised: dict[str, Any]) -> list[dict[str, Any]]:
    """Findings of one report, flat: rule, low and high (shares, None without a number), where, message.

    Shares are those of the step; of what shortens the run but not the profiled steps, of the step with all that happens
    between steps.
    """
    step_us = (advised.get("metrics") or {}).get("step_time_us")
    found = []
    for outcome in advised.get("outcomes") or []:
        for finding in outcome["findings"] if outcome["status"] == "found" else []:
            saving = finding["saving"] if step_us else None
            whole_us = finding.get("run_us") or step_us
            found.append(
                {
                    "rule": outcome["rule"],
                    "low": saving["low_us"] / whole_us if saving else None,
                    "high": saving["high_us"] / whole_us if saving else None,
                    "where": finding["where"],
                    "message": finding["message"],
                }
            )
    return found


def declared_lines(result: dict[str, Any]) -> set[int] | None:
    """Numbers of the lines of slow.py that hold a declared text; None where none is declared."""
    declared = result["facts"].get("line")
    if not declared:
        return None
    texts = [declared] if isinstance(declared, str) else declared
    folder = ROOT / result["facts"].get("folder", "samples/pairs")  # those of a GPU lie elsewhere
    lines = (folder / result["name"] / "slow.py").read_text("utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if any(text in line for text in texts)}


def at_lines(finding: dict[str, Any], wanted: set[int] | None) -> bool:
    """Whether the finding's costliest place is one of these lines."""
    return bool(wanted and finding["where"]) and finding["where"][0]["line"] in (wanted or ())


def best(advised: dict[str, Any], rules: list[str], wanted: set[int] | None) -> dict[str, Any] | None:
    """What the declared rules say, as one finding.

    Those of one rule that name the fault's lines count together, since the fix removes them all; without one, the
    largest promise. Two rules that name a line speak of the same time.
    """
    ours = [f for f in findings(advised) if f["rule"] in rules]
    right = [f for f in ours if at_lines(f, wanted)]
    if len(right) < 2:
        return max(right or ours, key=lambda f: f["high"] or 0.0, default=None)
    first = max(right, key=lambda f: f["high"] or 0.0)
    numbers = [f for f in right if f["high"] is not None and f["rule"] == first["rule"]]
    if not numbers:
        return first
    return first | {"low": sum(f["low"] for f in numbers), "high": min(1.0, sum(f["high"] for f in numbers))}


def known_rules(results: list[dict[str, Any]]) -> set[str]:
    """Every rule that any report has an outcome for."""
    return {
        outcome["rule"]
        for result in results
        for advised in result.get("advised", {}).values()
        for outcome in advised.get("outcomes") or []
    }


def judged(result: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """One pair's row: what was measured, promised and said."""
    measured, advised, rules = result.get("measured"), result.get("advised", {}), result["facts"].get("rules", [])
    slow, fixed = advised.get("slow", {}), advised.get("fixed", {})
    wanted = declared_lines(result)
    on_slow, on_fixed = best(slow, rules, wanted), best(fixed, rules, None)
    row: dict[str, Any] = {"name": result["name"], "rules": rules, "measured": measured, "found": on_slow}
    row["held_out"] = bool(result["facts"].get("held_out"))
    row["counts"] = bool(measured) and measured["low"] > 0
    row["asked"] = bool(slow)
    row["exists"] = bool(set(rules) & known)
    row["failed"] = slow.get("failed") or fixed.get("failed") or ""
    row["silent"] = None if not fixed.get("outcomes") else on_fixed is None or (on_fixed["high"] or 0.0) < MATERIAL
    row["line"] = at_lines(on_slow, wanted) if on_slow and wanted else None
    row["inside"] = row["error"] = None
    if on_slow and on_slow["high"] is not None and measured:
        middle = (on_slow["low"] + on_slow["high"]) / 2
        row["inside"] = on_slow["low"] <= measured["saving"] <= on_slow["high"]
        row["error"] = abs(middle - measured["saving"])
        row["wrong"] = on_slow["high"] >= PROMISE and measured["saving"] <= KEPT_AT_LEAST
    elsewhere = [f for f in findings(slow) if f["rule"] not in rules and (f["high"] or 0.0) >= MATERIAL]
    said = [(f["rule"], f"{f['rule']} {percent(f['low'], f['high'])}") for f in elsewhere]
    true = result["facts"].get("also", {})
    row["others"] = [text for rule, text in said if rule not in true]
    row["also"] = [text for rule, text in said if rule in true]
    if row["silent"] is False and on_fixed["rule"] in result["facts"].get("left", {}):
        row["silent"] = None
    return row


def percent(low: float | None, high: float | None) -> str:
    """A range as whole percents."""
    if low is None or high is None:
        return "no number"
    return f"{100 * low:.0f}-{100 * high:.0f} %"


def spearman(pairs: list[tuple[float, float]]) -> float | None:
    """Rank correlation (ties share their mean rank); None below four pairs."""
    if len(pairs) < 4:
        return None
    ranked = [_ranks([pair[i] for pair in pairs]) for i in (0, 1)]
    try:
        return statistics.correlation(*ranked)
    except statistics.StatisticsError:
        return None


def _ranks(values: list[float]) -> list[float]:
    return [sum(v < value for v in values) + (sum(v == value for v in values) + 1) / 2 for value in values]


def share(part: int, whole: int) -> str:
    """A count of a count, with the percentage."""
    return f"{part} of {whole} ({100 * part / whole:.0f} %)" if whole else "none to count"


def figures(rows: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """(figure, value, goal) over the pairs that count."""
    shown = [row for row in rows if row["counts"]]
    counted = [row for row in shown if row["asked"] and not row["failed"]]
    with_rule = [row for row in counted if row["exists"]]
    promised = [row for row in rows if row["error"] is not None and row["counts"]]
    every = [row for row in rows if row["error"] is not None]
    healthy = [f for r in results if r["kind"] == "healthy" for f in findings(r["advised"]["slow"]) if f["high"]]
    loud = [f for f in healthy if f["high"] >= MATERIAL]
    controls = [r for r in results if r["kind"] == "control" and "advised" in r]
    quiet = [r for r in controls if all((f["high"] or 0.0) <= CONTROL_LIMIT for f in findings(r["advised"]["slow"]))]
    right = sum(len(row["also"]) + bool(row["found"]) for row in rows)
    false = sum(len(row["others"]) + (row["silent"] is False) for row in rows) + len(loud)
    rank = spearman([((row["found"]["low"] + row["found"]["high"]) / 2, row["measured"]["saving"]) for row in promised])
    lines = [row["line"] for row in rows if row["line"] is not None]
    return [
        ("pairs measured / that show their fault here", f"{len(rows)} / {len(shown)}", "≥ 30 / ≥ 20"),
        ("of them asked about", share(len(counted), len(shown)), "all"),
        ("recall, all faults that show", share(sum(1 for r in counted if r["found"]), len(counted)), "≥ 95 %"),
        ("recall where a rule exists", share(sum(1 for r in with_rule if r["found"]), len(with_rule)), "≥ 95 %"),
        ("precision (declared findings of all ≥ 2 %)", share(right, right + false), "≥ 90 %"),
        ("silent on fixed", share(*_silent(with_rule)), ""),
        ("right line", share(sum(lines), len(lines)), ""),
        ("median error", _points([row["error"] for row in promised]), "≤ 5 points"),
        ("measured inside the promised range", share(sum(r["inside"] for r in promised), len(promised)), "≥ 80 %"),
        (
            "mean width of a promised range",
            _points([r["found"]["high"] - r["found"]["low"] for r in promised], mean=True),
            "",
        ),
        ("rank correlation", "-" if rank is None else f"{rank:.2f}", "≥ 0.9"),
        ("wrong promises", share(sum(r["wrong"] for r in every), len(every)), "≤ 2 %"),
        ("findings ≥ 2 % on healthy scripts", str(len(loud)), "0"),
        ("controls promised ≤ 1.5 %", share(len(quiet), len(controls)), "100 %"),
    ]


def rule_rows(rows: list[dict[str, Any]], known: set[str]) -> list[str]:
    """One line per rule: over the counted pairs that declare it first, how often it was right in each way."""
    lines = []
    for rule in sorted({row["rules"][0] for row in rows}):
        ours = [row for row in rows if row["rules"][0] == rule and row["counts"] and row["asked"] and not row["failed"]]
        if not ours:
            continue
        found = [row for row in ours if row["found"]]
        numbered = [row for row in found if row["error"] is not None]
        middle = [(row["found"]["low"] + row["found"]["high"]) / 2 for row in numbered]
        cells = [
            rule if rule in known else f"{rule} (no rule yet)",
            f"{len(found)} of {len(ours)}",
            "{} of {}".format(*_silent(ours)),
            f"{100 * statistics.median(middle):.0f} %" if middle else "",
            f"{100 * statistics.median(row['measured']['saving'] for row in ours):.0f} %",
            f"{sum(row['inside'] for row in numbered)} of {len(numbered)}",
            _points([row["error"] for row in numbered]) if numbered else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _silent(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """(silent, asked): pairs whose fixed.py keeps something of the kind, as declared, are not asked."""
    asked = [row["silent"] for row in rows if row["silent"] is not None]
    return sum(asked), len(asked)


def _points(errors: list[float], *, mean: bool = False) -> str:
    of = statistics.fmean if mean else statistics.median
    return f"{100 * of(errors):.1f} points of the step" if errors else "none to count"


def yes(value: bool | None) -> str:
    """yes, no, or nothing to say."""
    return "" if value is None else "yes" if value else "**no**"


def pair_row(row: dict[str, Any]) -> str:
    """One line of the table of pairs."""
    measured = row["measured"]
    saving = "not measured"
    if measured:
        slow_ms = statistics.median(measured["slow_us"]) / 1000
        saving = f"{100 * measured['saving']:.0f} % [{100 * measured['low']:.0f}, {100 * measured['high']:.0f}]"
        saving += f" of {slow_ms:.1f} ms"
    if not row["asked"]:
        found = "not asked yet"
    elif row["failed"]:
        found = "no report"
    elif row["found"]:
        found = row["found"]["rule"]
    else:
        found = "**missed**" if row["exists"] else "no rule yet"
    promise = percent(row["found"]["low"], row["found"]["high"]) if row["found"] else ""
    counts = "" if row["counts"] else " (does not count)"
    cells = [row["name"], saving + counts, found, promise, yes(row["inside"]), yes(row["line"]), yes(row["silent"])]
    said = [*row["others"], *(f"{text} (true)" for text in row["also"])]
    return "| " + " | ".join([*cells, ", ".join(said)]) + " |"


def other_row(result: dict[str, Any]) -> str:
    """One line of the table of healthy scripts and controls."""
    measured, advised = result.get("measured"), result.get("advised", {}).get("slow", {})
    gain = "" if not measured else f"{100 * measured['saving']:.1f} % [{100 * measured['low']:.1f}, "
    gain += "" if not measured else f"{100 * measured['high']:.1f}]"
    said = advised.get("failed") or ", ".join(f"{f['rule']} {percent(f['low'], f['high'])}" for f in findings(advised))
    return f"| {result['name']} | {result['kind']} | {gain} | {said or 'nothing'} |"


def line_of(result: dict[str, Any]) -> str:
    """One line for the terminal while measuring."""
    return pair_row(judged(result, known_rules([result]))) if result["kind"] == "pair" else other_row(result)


def document(results: list[dict[str, Any]]) -> str:
    """All of it as Markdown."""
    known = known_rules(results)
    rows = [judged(result, known) for result in results if result["kind"] == "pair"]
    others = [result for result in results if result["kind"] != "pair"]
    ready = [r for r in results if "advised" in r]
    parts = ["| figure | measured | goal |", "|---|---|---|"]
    parts += [f"| {' | '.join(line)} |" for line in figures(rows, ready)] if ready else []
    kept = [r for r in ready if r["facts"].get("held_out")]
    if kept:
        parts += ["", "Of the held-out scripts alone, on which no rule was tuned:", "", *parts[:2]]
        lines = figures([row for row in rows if row["held_out"]], kept)
        parts += [f"| {' | '.join(line)} |" for line in lines]
    parts += ["", "| rule | found on slow | silent on fixed | promised (middle) | measured | inside | median error |"]
    parts += ["|---|---|---|---|---|---|---|", *rule_rows(rows, known)]
    parts += [
        "",
        "| pair | measured saving | found by | promised | inside | line | silent on fixed | other findings ≥ 2 % |",
    ]
    parts += ["|---|---|---|---|---|---|---|---|", *map(pair_row, rows)]
    parts += ["", "| script | kind | measured gain of the popular fix | findings |", "|---|---|---|---|"]
    return "\n".join([*parts, *map(other_row, others)])
