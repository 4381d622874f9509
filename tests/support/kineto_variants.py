"""Every way in which trace files are known to be odd, each with the outcome that the reader owes."""

from __future__ import annotations

from kineto_containers import containers
from kineto_defects import texts
from kineto_dialects import Variant
from kineto_oddities import oddities

VARIANTS: tuple[Variant, ...] = (*containers(), *texts(), *oddities())
