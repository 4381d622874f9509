"""The page: one HTML file without a network, readable with JavaScript off.

Every value goes through Jinja's autoescape after control characters were taken out; nothing is ever marked safe. The
stylesheet and the script are fixed texts, allowed by their hashes and by nothing else.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib import resources

import jinja2

from advisor.api import Report

from .. import _labels, _line_shares, _memory, _rank_scaling, _ranking, _run_account, _tried, _verdict, _windows, _words
from . import _charts, _compiled, _prose, _view


def render(report: Report) -> str:
    """The report as one self-contained HTML page."""
    view = _view.page(report)
    parts = ("page", "heat") if view.heat else ("page",)
    return framed("page.html", [f"{one}.css" for one in parts], [f"{one}.js" for one in parts], view=view)


def framed(name: str, styles: Sequence[str], scripts: Sequence[str] = (), **values: object) -> str:
    """A page: a template that fills the blocks of frame.html, with these stylesheets and scripts and no others."""
    environment = _environment()
    style, script = ("".join(environment.get_template(one).render() for one in names) for names in (styles, scripts))
    return environment.get_template(name).render(
        styles=styles, scripts=scripts, style_hash=_hash(style), script_hash=_hash(script), **values
    )


def _hash(text: str) -> str:
    """The source expression by which a Content-Security-Policy allows exactly this text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        bytecode_cache=_compiled.cache(),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        time=_words.time,
        share=_words.share,
        count=_words.count,
        plural=_words.plural,
        path=_words.path,
        line=_words.one_line,
        short=_words.short,
        pieces=_words.pieces,
        sentence=_words.sentence,
        blocks=_prose.blocks,
        widest=_prose.widest,
        spans=_prose.spans,
    )
    environment.globals.update(
        labels=_labels,
        shares=_line_shares,
        ranking=_ranking,
        verdict=_verdict,
        words=_words,
        charts=_charts,
        memory=_memory,
        scaling=_rank_scaling,
        run_account=_run_account,
        windows=_windows,
        trials=_tried,
    )
    return environment


def _source(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text("utf-8")


def _shown(value: object) -> object:
    """Text without control characters; markup that Jinja itself escaped stays as it is."""
    return _words.clean(value) if type(value) is str else value
