"""Whose code runs: the user's, or that of the standard library, of installed packages and of ourselves."""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
import tempfile
from functools import lru_cache
from types import CodeType

import torch

# Where packages are installed, whichever interpreter or overlay brought them onto the path.
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_PACKAGE = re.compile(r"[/\\](?:site|dist)-packages[/\\](\w+)")
_TEMPORARY = os.path.abspath(tempfile.gettempdir()) + os.sep


def package_of(file: str) -> str:
    """The installed package that a file belongs to, `matplotlib`; empty for any other file."""
    found = _PACKAGE.findall(file)
    return str(found[-1]) if found else ""


def file_of(code: CodeType, foreign: tuple[str, ...]) -> str:
    """The path of a user's function, as run.json names it; empty where the code is not the user's, or made up."""
    return file_at(code.co_filename, foreign)


def file_at(name: str, foreign: tuple[str, ...]) -> str:
    """The path of a file of the user's code, as run.json names it; empty where it is not the user's, or made up."""
    path = absolute(name)
    return "" if name.startswith("<") or is_foreign(path, foreign) else relative(path)


def absolute(file: str) -> str:
    """As os.path.abspath, without Python code of others: old torch.compile looks at what runs in its regions."""
    if ".." in file:
        return os.path.abspath(file)
    return file if file.startswith(os.sep) else f"{os.getcwd()}{os.sep}{file}"


def relative(path: str) -> str:
    """The path below the working directory where it lies there, else as it is; never with our separator in it."""
    here = os.getcwd() + os.sep
    return (path[len(here) :] if path.startswith(here) else path).replace("|", "/")


def is_foreign(path: str, folders: tuple[str, ...]) -> bool:
    """Whether a file is not the user's: below these folders, installed elsewhere (PYTHONPATH, .pth), or generated."""
    return _is_installed(path, folders) or (path.startswith(_TEMPORARY) and _is_generated(path, folders))


def _is_installed(path: str, folders: tuple[str, ...]) -> bool:
    return path.startswith(folders) or any(name in path for name in _INSTALLED)


@lru_cache(maxsize=1000)
def _is_generated(path: str, folders: tuple[str, ...]) -> bool:
    """Whether an installed package wrote a temporary file and loaded it as a module of its own.

    PyTorch Geometric makes the message passing of a layer so, torch.compile the code of a graph. Scripts in temporary
    folders are modules of no installed package.
    """
    for name, module in [*sys.modules.items()]:
        package = sys.modules.get(name.partition(".")[0])
        if package is not module and _file_of_module(module) == path:
            return _is_installed(_file_of_module(package), folders)
    return False


def _file_of_module(module: object) -> str:
    """Without a module's own __getattr__, which may import."""
    return str(getattr(module, "__dict__", {}).get("__file__") or "")


def foreign_folders() -> tuple[str, ...]:
    """Folders of code that is not the user's: the standard library, installed packages, ourselves."""
    found = {sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__))), os.path.dirname(os.__file__)}
    ours = os.path.abspath(__file__)
    for _ in range(4):  # all of the package: parts of it call the user's code, be it installed or a checkout
        ours = os.path.dirname(ours)
    found |= {*site.getsitepackages(), site.getusersitepackages(), ours}
    return tuple(os.path.abspath(one) + os.sep for one in found)
