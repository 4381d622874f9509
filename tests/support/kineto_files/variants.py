"""Every way in which trace files are known to be odd, each with the outcome that the reader owes."""

from __future__ import annotations

from kineto_files.containers import containers
from kineto_files.defects import texts
from kineto_files.dialects import Variant
from kineto_files.oddities import oddities

VARIANTS: tuple[Variant, ...] = (*containers(), *texts(), *oddities())
