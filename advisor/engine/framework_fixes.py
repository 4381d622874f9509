"""Fixes in the words of the framework that runs the loop, where it has arguments of its own for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from advisor.analyses.lines.library_calls import looping_package
from advisor.capture.record import Loader, Optimizer, RankRecord
from advisor.fixing import framework_calls
from advisor.fixing.framework_calls import OwnCall
from advisor.model import Finding, Fix, Source, Treatment

# Settings that a framework's option sets, or that the script sets itself: treatment -> names in `Settings.set_at`.
_SET = {"calls": ("anomaly_detection", "deterministic"), "ddp": ("ddp",)}

_A_LOADER = Treatment("loader")
_OF_FRAMEWORKS = ("transformers", "accelerate", "lightning", "pytorch_lightning")


def worded(
    findings: tuple[Finding, ...], record: RankRecord | None, holders: Collection[Source] = ()
) -> tuple[Finding, ...]:
    """The findings, their fixes as the framework has them, or naming the package that has or makes what they change.

    holders: lines of the script that do nothing but call the training loop of a package.
    """
    if record is None:
        return findings
    if record.settings.framework is None:
        return tuple(_in_package(_of_package(one, record), record, holders) for one in findings)
    own = ((one, _of_framework(one, record)) for one in findings)
    return tuple(_of_package(new, record) if new.fix == one.fix else new for one, new in own)


def _of_framework(finding: Finding, record: RankRecord) -> Finding:
    fix, framework = finding.fix, record.settings.framework
    change = (fix.treatment or fix.edit) if fix else None
    own = framework_calls.of(framework, change)
    if fix is not None and change is not None and own is not None and _made_by(framework, record, change):
        return replace(finding, fix=_as(fix, own))
    if fix is not None and change is None and _made_by(framework, record, _A_LOADER):
        before, after = (framework_calls.loader_words(framework, text) for text in (fix.before, fix.after))
        title = framework_calls.loader_title(framework, fix.title) if after != fix.after else fix.title
        return replace(finding, fix=replace(fix, title=title, before=before, after=after))
    return finding


def _of_package(finding: Finding, record: RankRecord) -> Finding:
    """The finding with the installed package that makes all loaders, or optimizers, that its fix changes."""
    fix = finding.fix
    what = _made_object(fix)
    made: Sequence[Loader | Optimizer] = record.optimizers if what == "optimizer" else record.loaders if what else ()
    packages = {one.made_in for one in made}
    # What a package makes that builds on a framework is its own; accelerate makes anew what it is given.
    if fix is None or len(packages) != 1 or packages & {"", *_OF_FRAMEWORKS}:
        return finding
    package = packages.pop()
    title = f"{fix.title}; `{package}` makes the {what}: set it there, if `{package}` has an argument for it"
    return replace(finding, fix=replace(fix, title=title))


def _in_package(finding: Finding, record: RankRecord, holders: Collection[Source]) -> Finding:
    """The finding with the package whose code its fix rewrites: no line of the script has the code that is at fault."""
    fix, where = finding.fix, finding.where
    if fix is None or fix.treatment or fix.edit or not (fix.before and fix.after) or _made_object(fix):
        return finding
    package = looping_package(record, {one.place for one in where})
    if not package or not set(where) <= set(holders):
        return finding
    title = f"{fix.title}; this is code of `{package}`: change it there, if `{package}` has an argument for it"
    return replace(finding, fix=replace(fix, title=title))


def _made_object(fix: Fix | None) -> str:
    """What a fix gives another argument: DataLoader | optimizer; empty for any other fix."""
    change = (fix.treatment or fix.edit) if fix else None
    if change is not None:
        return {"loader": "DataLoader", "batch": "DataLoader", "optimizer": "optimizer"}.get(change.name, "")
    return "DataLoader" if fix is not None and "DataLoader(" in fix.after else ""


def _made_by(framework: str | None, record: RankRecord, change: Treatment) -> bool:
    """Whether the framework makes what the change concerns, not the script."""
    made: Collection[str | None] = [framework]
    if change.name in ("loader", "batch"):
        made = [one.made_by for one in record.loaders]
    elif change.name == "optimizer":
        made = [one.made_by if one.name == "AdamW" else None for one in record.optimizers]
    elif change.name in _SET:
        places = (record.settings.set_at.get(name) for name in _SET[change.name])
        made = [one.made_by for one in places if one is not None]
    return set(made) == {framework}


def _as(fix: Fix, own: OwnCall) -> Fix:
    title = own.title or fix.title
    for torchs, frameworks in own.renamed.items():
        title = title.replace(f"`{torchs}", f"`{frameworks}")
    return replace(
        fix, title=title, before=own.before, after=own.after, treatment=own.treats or fix.treatment, edit=own.edit
    )
