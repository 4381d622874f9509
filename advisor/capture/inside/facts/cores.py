"""Cores that this process may use: its affinity, and the quota of its control groups. Standard library only."""

from __future__ import annotations

import os


def available(root: str = "/") -> tuple[int, str]:
    """The number of cores, and what limits it. root: where /proc and /sys are."""
    total = os.cpu_count() or 1
    try:
        count = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        count = total
    reason = "all of them" if count == total else f"its CPU affinity, of {total}"
    quota = _quota(root)
    # A quota of 1.5 cores runs two threads at three quarters of their speed: that is two cores to plan with.
    if quota is not None and (limit := max(1, round(quota + 0.25))) < count:
        return limit, f"a control group's quota of {quota:g}, of {total}"
    return count, reason


def _quota(root: str) -> float | None:
    """Cores that the tightest control group above this process grants; None without a limit."""
    found = []
    for folder in _groups(root):
        words = _read(os.path.join(folder, "cpu.max")).split()
        if len(words) == 2 and words[0] != "max":
            found.append(int(words[0]) / int(words[1]))
        quota, period = (
            _read(os.path.join(folder, "cpu.cfs_quota_us")),
            _read(os.path.join(folder, "cpu.cfs_period_us")),
        )
        if quota.strip().isdigit() and period.strip().isdigit():
            found.append(int(quota) / int(period))
    return min(found, default=None)


def quota_periods(root: str = "/") -> tuple[int, int] | None:
    """(periods of its quota so far, those of them in which it was used up), of the group that most of them stopped.

    docs.kernel.org/scheduler/sched-bwc.html: nr_periods and nr_throttled in cpu.stat, with both versions of control
    groups. None without a quota.
    """
    found = []
    for folder in _groups(root):
        stat = dict(line.split(" ", 1) for line in _read(os.path.join(folder, "cpu.stat")).splitlines() if " " in line)
        periods, stopped = stat.get("nr_periods", "").strip(), stat.get("nr_throttled", "").strip()
        if periods.isdigit() and stopped.isdigit() and int(periods):
            found.append((int(stopped), int(periods)))
    return max(found)[::-1] if found else None


def _groups(root: str) -> list[str]:
    """Folders of this process's control groups, each with all folders above it."""
    found = []
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = os.path.join(root, "sys/fs/cgroup", "cpu" if controllers else "")
        while True:
            found.append(os.path.join(base, path.strip("/")))
            if path in ("", "/"):
                break
            path = os.path.dirname(path.rstrip("/"))
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
