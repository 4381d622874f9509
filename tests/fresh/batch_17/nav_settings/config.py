"""Settings as a tree that is read by attributes, with references such as ${sensor.beams} elsewhere in the tree."""

import re
import tomllib
from types import SimpleNamespace

REFERENCE = re.compile(r"\$\{([\w.]+)\}")


class Config:
    def __init__(self, values, root=None):
        self._values = values
        self._root = root or self

    @classmethod
    def load(cls, text):
        return cls(tomllib.loads(text))

    def __getattr__(self, name):
        return self._resolved(self._values[name])

    def __contains__(self, name):
        return name in self._values

    def _resolved(self, value):
        if isinstance(value, dict):
            return Config(value, self._root)
        if isinstance(value, str) and (found := REFERENCE.fullmatch(value)):
            place = self._root
            for part in found.group(1).split("."):
                place = getattr(place, part)
            return place
        return value

    def plain(self):
        """The same tree with all references resolved once, as plain namespaces."""
        whole = {name: self._resolved(value) for name, value in self._values.items()}
        return SimpleNamespace(**{n: v.plain() if isinstance(v, Config) else v for n, v in whole.items()})
