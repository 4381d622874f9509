"""Python frames of a trace: whose code they are, and which one ran at each instant."""

from __future__ import annotations

import functools
import re
import sys
from enum import IntEnum

import numpy as np

from advisor.analyses.base.nesting import nearest, parents
from advisor.model import Source
from advisor.trace.events import Category, Events, Ints, Mask
from advisor.trace.intervals import Intervals
from advisor.trace.numbers import distinct, order_by

_FRAME = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)$")
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_STANDARD = re.compile(r"[/\\]lib(?:64)?[/\\]python\d(?:\.\d+)?[/\\]|^<")
# Kineto cuts the search path off a file's name, so an installed package shows as "transformers/…", as a user's own
# package would. These are the packages that training scripts import most; any other counts as the user's code.
_PACKAGES = re.compile(
    r"(?:"
    r"absl|accelerate|aiohttp|albumentations|apex|av|bitsandbytes|boto3|botocore|click|cv2|dask|datasets|deepspeed"
    r"|denoising_diffusion_pytorch|detectron2|diffusers|einops|ema_pytorch|fairscale|fastai|fastcore|fbgemm_gpu"
    r"|flash_attn|fsspec|h5py|httpcore|httpx|huggingface_hub|hydra|ignite|imageio|joblib|kornia|librosa|liger_kernel"
    r"|lightly|lightning|lightning_fabric|matplotlib|megatron|mlflow|mmcv|mmengine|monai|nltk|numba|numpy|nvidia"
    r"|omegaconf|pandas|peft|PIL|polars|pyarrow|pykeen|pytorch_forecasting|pytorch_lightning|pytorch_metric_learning"
    r"|ray|requests|safetensors|scipy|segmentation_models_pytorch|sentence_transformers|sentencepiece|skimage|sklearn"
    r"|skorch|soundfile|spacy|tensorboard|tensordict|tiktoken|timm|tokenizers|torch_geometric|torchao|torchaudio"
    r"|torchcodec|torchdata|torchmetrics|torchrec|torchsparse|torchtext|torchvision|tqdm|transformer_engine"
    r"|transformers|triton|trl|ultralytics|unsloth|urllib3|vit_pytorch|vllm|wandb|webdataset|x_transformers|xformers"
    r"|zarr"
    r")/"
)


class Owner(IntEnum):
    """Whose code a frame is."""

    MACHINERY = 0  # torch, the standard library, built-ins, modules: never an answer to "which line"
    LIBRARY = 1  # an installed package
    USER = 2


def parse(name: str) -> tuple[Source, Owner] | None:
    """The frame that a name such as `train.py(12): main` tells of; None for what is no frame with a line."""
    found = _FRAME.match(name)
    if found is None:
        return None
    file = found["file"].strip()
    return Source(file, int(found["line"]), found["function"].strip(), "function"), owner(file)


@functools.lru_cache(maxsize=1024)
def owner(file: str) -> Owner:
    """Whose code a file is, by its path."""
    installed = _INSTALLED.split(file)
    path = installed[-1].replace("\\", "/")
    first = path.split("/")[0].removesuffix(".py")
    if (first == "torch" and "/" in path) or "advisor/capture/" in path:
        return Owner.MACHINERY
    if len(installed) > 1:
        return Owner.LIBRARY
    if _STANDARD.search(file) or (first in sys.stdlib_module_names and not file.startswith("/")):
        return Owner.MACHINERY
    return Owner.LIBRARY if _PACKAGES.match(path) else Owner.USER


def frame_rows(events: Events, thread: int) -> tuple[Mask, dict[int, tuple[Source, Owner]]]:
    """Rows of frames on a thread that are the user's or a library's, and name index -> frame."""
    rows = events.of(Category.PYTHON) & (events.thread == thread)
    frames: dict[int, tuple[Source, Owner]] = {}
    for index in distinct(events.name[np.flatnonzero(rows)], len(events.names)).tolist():
        parsed = parse(events.names[index])
        if parsed is not None and parsed[1] != Owner.MACHINERY:
            frames[index] = parsed
    chosen = np.zeros(len(events.names), bool)
    chosen[list(frames)] = True
    return rows & chosen[events.name], frames


def innermost(events: Events, rows: Mask, above: Ints | None = None) -> tuple[Intervals, Ints]:
    """Who is innermost of the given rows of one thread, instant by instant: (spans, row of each span).

    above: `parents(events, rows)`, where that is known already.
    """
    chosen = np.flatnonzero(rows & (events.dur_ns > 0))
    if not len(chosen):
        return np.empty((0, 2), np.int64), np.empty(0, np.int64)
    parent = (parents(events, rows) if above is None else above)[chosen]
    # At its start a row becomes innermost, at its end its parent does. Ends sort before starts, inner ends first.
    time = np.concatenate((events.start_ns[chosen], events.end_ns[chosen]))
    is_start = np.repeat((True, False), len(chosen))
    length = np.tile(events.dur_ns[chosen], 2)
    order = order_by(time, is_start, np.where(is_start, -length, length))
    time, who = time[order], np.concatenate((chosen, parent))[order]
    spans = np.column_stack((time[:-1], time[1:]))
    keep = (spans[:, 1] > spans[:, 0]) & (who[:-1] >= 0)
    return spans[keep], who[:-1][keep]


def enclosing(events: Events, rows: Mask, of_rows: Mask) -> Ints:
    """For each event of `of_rows` the innermost of `rows` around it on its thread; -1 elsewhere."""
    around = nearest(parents(events, rows | of_rows), rows)
    return np.where(of_rows, around, -1)
