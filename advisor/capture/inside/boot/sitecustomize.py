"""Starts capture in a Python process that `advisor run` has started, directly or through a launcher.

This folder stands first on PYTHONPATH, so the interpreter imports this file before the script. It takes itself out of
sys.path again, runs the sitecustomize that it hides, and loads the capture package by path under a private name: the
user's own modules named `advisor`, `rules` or `reports` stay theirs. Nothing here may ever fail or print.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _run_hidden() -> None:
    """Imports the sitecustomize that a bare interpreter would have found."""
    own = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as failure:
        sys.modules["sitecustomize"] = own
        if getattr(failure, "name", None) != "sitecustomize":
            raise
    except BaseException:
        sys.modules["sitecustomize"] = own
        raise


def _start() -> None:
    """Loads the capture package and lets it decide what this process is."""
    setting = os.environ.get("TORCH_ADVISOR_CAPTURE")
    if not setting or sys.version_info < (3, 9):
        return
    import importlib.util

    package = os.path.dirname(_FOLDER)
    name = "_torch_advisor"
    path = os.path.join(package, "__init__.py")
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=[package])
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    import _torch_advisor.bootstrap

    _torch_advisor.bootstrap.start(setting)


sys.path[:] = [entry for entry in sys.path if entry != _FOLDER]
try:  # noqa: SIM105 - contextlib would be an import more in every process
    _start()
except Exception:
    pass
_run_hidden()
