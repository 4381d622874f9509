"""Of processes that tests start: torch without what it costs beside what they are about. 3.3 CPU s become 1.3 (n = 3).

An import makes half a million objects that stay, and Python looks some 700 times for those that do not: it looks no
more, and not at its end either, where all that is alive is frozen. What a script sets comes later, and stands. The
first step of an optimizer imports torch's compiler, to tell it what it shall not compile: where nothing else imports
it, nothing does. The complete run has Python's and torch's own ways, and so has a process without this folder on its
PYTHONPATH.
"""

import atexit
import functools
import gc
import sys

gc.set_threshold(1_000_000)
atexit.register(gc.freeze)  # the first of all is called last: what the script registers finds everything as it was

_COMPILER = "torch._dynamo"


class _Finder:
    """Finds the modules whose decorators import the compiler, and changes these."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """The module's own spec, for these names alone."""
        if name not in _DECORATORS:
            return None
        import importlib.machinery

        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: _changed(module, execute)
        return spec


def _changed(module, execute):
    """Loads the module with its decorator changed."""
    execute(module)
    decorator, change = _DECORATORS[module.__name__]
    original = getattr(module, decorator, None)
    if original is not None:
        setattr(module, decorator, functools.wraps(original)(change(module, original)))


def _as_of(module, function):
    """The function as one of the module's file, where what looks for the script's own lines expects it."""
    function.__code__ = function.__code__.replace(co_filename=module.__file__)
    return function


def _disable(module, original):
    """`_disable_dynamo`: what it decorates goes through the compiler only where that is there."""

    def disable(fn=None, recursive=True):
        if fn is None:
            return functools.partial(disable, recursive=recursive)
        disabled = original(fn, recursive)

        def inner(*args, **kwargs):
            return (disabled if _COMPILER in sys.modules else fn)(*args, **kwargs)

        return functools.wraps(fn)(_as_of(module, inner))

    return disable


def _use_grad_for_differentiable(module, original):
    """The same for steps of optimizers, with what this decorator is for."""

    def decorated(func):
        whole = original(func)

        def _use_grad(self, *args, **kwargs):
            if _COMPILER in sys.modules:
                return whole(self, *args, **kwargs)
            with module.torch.set_grad_enabled(self.defaults["differentiable"]):
                return func(self, *args, **kwargs)

        return functools.wraps(func)(_as_of(module, _use_grad))

    return decorated


_DECORATORS = {
    "torch._compile": ("_disable_dynamo", _disable),
    "torch.optim.optimizer": ("_use_grad_for_differentiable", _use_grad_for_differentiable),
}
sys.meta_path.insert(0, _Finder)
