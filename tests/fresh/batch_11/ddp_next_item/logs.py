"""Averages of what a step reports."""

import torch
import torch.distributed as dist


class Averages:
    """Weighted means by name."""

    def __init__(self):
        self.sums, self.rows = {}, 0

    def update(self, values, rows):
        """Add what one step reports."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value.detach() * rows
        self.rows += rows

    def reduce(self):
        """The means over all processes."""
        packed = torch.stack([*self.sums.values(), torch.tensor(float(self.rows))])
        dist.all_reduce(packed)
        return dict(zip(self.sums, (packed[:-1] / packed[-1]).tolist(), strict=True))


def synchronised(value):
    """The mean of a value over all processes."""
    value = value.detach().clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()
