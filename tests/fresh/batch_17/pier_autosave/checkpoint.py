"""Snapshots of a run that it can go on from."""

import gzip
import os

import torch


def save_snapshot(path, model, optimizer, step, compress=True):
    """Writes to a file beside the old one and then takes its place, so that no snapshot is ever half written."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    opened = gzip.open if compress else open
    with opened(f"{path}.part", "wb") as file:
        torch.save(state, file)
    os.replace(f"{path}.part", path)


def load_snapshot(path, compress=True):
    opened = gzip.open if compress else open
    with opened(path, "rb") as file:
        return torch.load(file)
