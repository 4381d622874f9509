"""Sample transforms that work on dictionaries."""

import numpy as np
import torch


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, sample):
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class RandomTime:
    def __init__(self, width):
        self.width = width

    def __call__(self, sample):
        return {**sample, "wave": np.roll(sample["wave"], np.random.randint(-self.width, self.width + 1))}


class Whiten:
    def __init__(self, sigma):
        self.sigma = sigma

    def __call__(self, sample):
        return {**sample, "wave": sample["wave"] / self.sigma}


class AddNoise:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, sample):
        return {**sample, "wave": sample["wave"] + self.scale * np.random.standard_normal(len(sample["wave"]))}


class ToTensor:
    def __init__(self, dtype):
        self.dtype = dtype

    def __call__(self, sample):
        return {key: torch.as_tensor(value, dtype=self.dtype) for key, value in sample.items()}
