"""Settings of a run."""

from dataclasses import dataclass


@dataclass
class TrainConfig:
    vocabulary: int = 2000
    width: int = 48
    heads: int = 4
    layers: int = 12
    length: int = 24
    traits: int = 6
    essays: int = 3200
    batch_size: int = 8
    epochs: int = 2
    lr: float = 4e-4
    layer_decay: float = 0.9
    weight_decay: float = 0.01
    warmup: int = 40
    log_every: int = 90
    seed: int = 18
