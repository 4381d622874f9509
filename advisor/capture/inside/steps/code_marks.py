"""What is known of a function that stands on a sampled stack: whose it is, and which work of torch's it stands for.

Looked up once for each code object; the stacks of a run have a few hundred different ones.
"""

from __future__ import annotations

import os
import sys
from types import CodeType

from ..guards.user_code import file_of, foreign_folders, package_of

# Work that a function of torch, Python or a framework stands for, wherever on the stack it is.
FORWARD, BACKWARD, OPTIMIZER, SAVE, FETCH, ITERATOR, LOADERS = (
    "forward",
    "backward",
    "optimizer",
    "save",
    "fetch",
    "iterator",
    "loaders",
)
WORKERS, EVALUATE, COMPILE, IMPORT, OUTPUTS, COMPRESS = (
    "workers",
    "evaluate",
    "compile",
    "import",
    "outputs",
    "compress",
)

_NESTED = ("nested_concat", "nested_detach", "nested_numpify", "nested_truncate")
# (end of the file's path, names of its functions; none: all of them)
_KNOWN = (
    (FORWARD, "torch/nn/modules/module.py", ("_call_impl", "_wrapped_call_impl", "__call__")),
    (BACKWARD, "torch/autograd/graph.py", ("_engine_run_backward",)),
    (BACKWARD, "torch/autograd/__init__.py", ("backward", "grad")),
    (OPTIMIZER, "torch/optim/optimizer.py", ("wrapper",)),
    (SAVE, "torch/serialization.py", ("save", "_save", "_legacy_save")),
    (FETCH, "torch/utils/data/dataloader.py", ("__next__",)),
    (ITERATOR, "torch/utils/data/dataloader.py", ("_get_iterator",)),
    # Lightning asks the script for its loaders, once or in each epoch.
    (LOADERS, "/trainer/connectors/data_connector.py", ("_request_dataloader",)),
    (WORKERS, "torch/utils/data/dataloader.py", ("_shutdown_workers", "__del__")),
    (COMPILE, "torch/_dynamo/convert_frame.py", ()),
    (IMPORT, "<frozen importlib._bootstrap>", ()),
    *((COMPRESS, f"/{module}.py", ("write",)) for module in ("gzip", "bz2", "lzma")),
    # What an evaluation keeps of all outputs: Transformers' Trainer and Accelerate gather, pad and concatenate them.
    (OUTPUTS, "transformers/trainer_pt_utils.py", ("add", "get_arrays", "to_cpu_and_numpy", *_NESTED)),
    (OUTPUTS, "accelerate/accelerator.py", ("gather_for_metrics", "pad_across_processes")),
)
# Functions of installed packages: the writers of checkpoints, and what frameworks call an evaluation.
_SAVERS = ("save_checkpoint", "_save_checkpoint", "save_pretrained", "save_state", "save_model", "save_file")
_EVALUATORS = ("evaluate", "evaluation_loop", "prediction_loop", "run_evaluation")


class Known:
    """One function. file: empty where it is not the user's. package: of one that is not, its package or module."""

    __slots__ = ("code", "file", "function", "mark", "package")

    def __init__(self, code: CodeType, foreign: tuple[str, ...]) -> None:
        self.code = code  # kept, so that no other gets its id
        self.file = file_of(code, foreign)
        self.function = code.co_name
        self.package = "" if self.file else _package(code.co_filename)
        self.mark = "" if self.file else _mark(code.co_filename.replace(os.sep, "/"), code.co_name)


class Codes:
    """All functions seen so far, by the id of their code."""

    def __init__(self) -> None:
        self.known: dict[int, Known] = {}
        self.foreign: tuple[str, ...] = ()

    def of(self, code: CodeType) -> int:
        """The key by which `known` has it."""
        key = id(code)
        if key not in self.known:
            self.foreign = self.foreign or foreign_folders()
            self.known[key] = Known(code, self.foreign)
        return key


def _mark(file: str, name: str) -> str:
    for mark, end, names in _KNOWN:
        if file.endswith(end) and (not names or name in names):
            return mark
    if name in _EVALUATORS or file.endswith("/evaluation_loop.py"):
        return EVALUATE
    return SAVE if name in _SAVERS or "/torch/distributed/checkpoint/" in file else ""


def _package(file: str) -> str:
    """`matplotlib` of a file that is installed, `json` of the standard library; empty for what has no file."""
    if file.startswith("<"):
        return ""
    if "torch/utils/tensorboard" in file:
        return "tensorboard"
    if found := package_of(file):
        return found
    above = [folder for folder in map(os.path.abspath, sys.path) if file.startswith(folder + os.sep)]
    if not above:
        return os.path.basename(os.path.dirname(file))
    return os.path.relpath(file, max(above, key=len)).partition(os.sep)[0].removesuffix(".py")
