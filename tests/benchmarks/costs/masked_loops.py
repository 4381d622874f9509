"""Loops whose turns pick elements with a mask, and what remains of them once they are written over all elements.

Twelve that people write, each beside the same result without the loop; `loop_rewrites.py` measures them. y decides what
is picked: about half of the elements of a turn.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Form = Callable[[Tensor, Tensor], Tensor]


def pooled(x: Tensor, y: Tensor) -> Tensor:
    """The mean of what is valid in each sample."""
    return torch.stack([x[i][y[i] > 0.5].mean() for i in range(len(x))]).sum()


def pooled_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    valid = y > 0.5
    return ((x * valid).sum((1, 2)) / valid.sum((1, 2))).sum()


def whitened(x: Tensor, y: Tensor) -> Tensor:
    """What is valid in each sample, by its own mean and deviation."""
    total = x.new_zeros(())
    for i in range(len(x)):
        valid = x[i][y[i] > 0.5]
        total = total + ((valid - valid.mean()) / (valid.var() + 1e-3)).square().mean()
    return total


def whitened_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    valid = y > 0.5
    count = valid.sum((1, 2), keepdim=True)
    centred = (x - (x * valid).sum((1, 2), keepdim=True) / count) * valid
    var = centred.square().sum((1, 2), keepdim=True) / (count - 1)
    return ((centred / (var + 1e-3)).square().sum((1, 2), keepdim=True) / count).sum()


def hardest(x: Tensor, y: Tensor) -> Tensor:
    """A margin between the farthest of the same label and the nearest of another, for each anchor."""
    far, label = _distances(x, y)
    total = far.new_zeros(())
    for i in range(len(far)):
        total = total + torch.relu(far[i][label == label[i]].max() - far[i][label != label[i]].min() + 1)
    return total


def hardest_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    far, label = _distances(x, y)
    same = label[:, None] == label
    return torch.relu(far.masked_fill(~same, -torch.inf).amax(1) - far.masked_fill(same, torch.inf).amin(1) + 1).sum()


def contrasted(x: Tensor, y: Tensor) -> Tensor:
    """Each anchor's positives against the exponentials of its negatives."""
    far, label = _distances(x, y)
    losses = []
    for i in range(len(far)):
        negative = torch.exp(-far[i][label != label[i]]).sum()
        positive = torch.exp(-far[i][label == label[i]])
        losses.append(-torch.log(positive / (positive + negative)).mean())
    return torch.stack(losses).sum()


def contrasted_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    far, label = _distances(x, y)
    same, near = label[:, None] == label, torch.exp(-far)
    negative = (near * ~same).sum(1, keepdim=True)
    return (-torch.log(near / (near + negative)) * same).sum(1).div(same.sum(1)).sum()


def weighed(x: Tensor, y: Tensor) -> Tensor:
    """A softmax over what is valid in each sample."""
    return sum((torch.softmax(x[i][y[i] > 0.5], -1) * y[i][y[i] > 0.5]).sum() for i in range(len(x)))


def weighed_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    x, y = x.flatten(1), y.flatten(1)
    return (torch.softmax(x.masked_fill(y <= 0.5, -torch.inf), -1) * y).sum()


def crossed(x: Tensor, y: Tensor) -> Tensor:
    """Binary cross entropy of the valid pixels of each image."""
    total = x.new_zeros(())
    for i in range(len(x)):
        valid = y[i] > 0.3
        total = total + functional.binary_cross_entropy_with_logits(x[i][valid], (y[i][valid] > 0.6).float())
    return total


def crossed_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    valid = y > 0.3
    each = functional.binary_cross_entropy_with_logits(x, (y > 0.6).float(), reduction="none")
    return ((each * valid).sum((1, 2)) / valid.sum((1, 2))).sum()


def mined(x: Tensor, y: Tensor) -> Tensor:
    """Negatives that come closer than the weakest positive, and positives beyond the strongest negative."""
    total = x.new_zeros(())
    for i in range(len(x)):
        positive, negative = x[i][y[i] > 0.5], x[i][y[i] <= 0.5]
        close = negative[negative > positive.min()]
        weak = positive[positive < negative.max()]
        total = total + close.square().sum() - weak.square().sum()
    return total


def mined_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    positive = y > 0.5
    least = x.masked_fill(~positive, torch.inf).amin((1, 2), keepdim=True)
    most = x.masked_fill(positive, -torch.inf).amax((1, 2), keepdim=True)
    close, weak = ~positive & (x > least), positive & (x < most)
    return (x.square() * (close.float() - weak.float())).sum()


def clipped(x: Tensor, y: Tensor) -> Tensor:
    """The outliers of each sample, beyond its mean by more than a part."""
    return sum((x[i][x[i] > x[i].mean() + 0.1 * y[i].mean()] ** 2).mean() for i in range(len(x)))


def clipped_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    above = x > x.mean((1, 2), keepdim=True) + 0.1 * y.mean((1, 2), keepdim=True)
    return ((x.square() * above).sum((1, 2)) / above.sum((1, 2))).sum()


def neighbours(x: Tensor, y: Tensor) -> Tensor:
    """The mean of all rows around each row."""
    far, _ = _distances(x, y)
    rows, limit = x[:, 0], far.detach().mean()
    return sum((rows[far[i] < limit].mean(0) - rows[i]).square().sum() for i in range(len(rows)))


def neighbours_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    far, _ = _distances(x, y)
    rows, near = x[:, 0], (far < far.detach().mean()).float()
    return (near @ rows / near.sum(1, keepdim=True) - rows).square().sum()


def smoothed(x: Tensor, y: Tensor) -> Tensor:
    """Errors of the time steps before each sequence ends."""
    ends = _ends(y)
    total = x.new_zeros(())
    for i in range(len(x)):
        before = torch.arange(x.shape[1]) < ends[i]
        total = total + functional.smooth_l1_loss(x[i][before], y[i][before])
    return total


def smoothed_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    before = (torch.arange(x.shape[1]) < _ends(y)[:, None])[..., None]
    each = functional.smooth_l1_loss(x, y, reduction="none") * before
    return (each.sum((1, 2)) / before.sum((1, 2)) / x.shape[2]).sum()


def overlapped(x: Tensor, y: Tensor) -> Tensor:
    """Dice of what each sample's mask holds and does not."""
    total = x.new_zeros(())
    for i in range(len(x)):
        p, inside = torch.sigmoid(x[i]), y[i] > 0.5
        total = total + 1 - 2 * p[inside].sum() / (p[inside].sum() + p[~inside].sum() + inside.sum() + 1)
    return total


def overlapped_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    p, inside = torch.sigmoid(x), y > 0.5
    return (1 - 2 * (p * inside).sum((1, 2)) / (p.sum((1, 2)) + inside.sum((1, 2)) + 1)).sum()


def ranked(x: Tensor, y: Tensor) -> Tensor:
    """Hinges between the mean of the relevant and each of the others of a query."""
    losses = []
    for i in range(len(x)):
        relevant = y[i] > 0.7
        losses.append(torch.relu(0.1 + x[i][~relevant] - x[i][relevant].mean()).sum())
    return torch.stack(losses).sum()


def ranked_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    relevant = y > 0.7
    mean = (x * relevant).sum((1, 2), keepdim=True) / relevant.sum((1, 2), keepdim=True)
    return (torch.relu(0.1 + x - mean) * ~relevant).sum()


def _distances(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Distances of the first rows of all turns, and labels of which each has about four."""
    rows = x[:, 0]
    square = (rows * rows).sum(1)
    far = square[:, None] + square - 2 * rows @ rows.T
    return far, torch.arange(len(rows)) % max(len(rows) // 4, 2) + 0 * y.detach()[0, 0, :1].long()


def _ends(y: Tensor) -> Tensor:
    return 1 + (y.detach()[:, 0, 0] * (y.shape[1] - 1)).long()


MASKED: dict[str, tuple[Form, Form]] = {
    "pooled": (pooled, pooled_once),
    "whitened": (whitened, whitened_once),
    "hardest": (hardest, hardest_once),
    "contrasted": (contrasted, contrasted_once),
    "weighed": (weighed, weighed_once),
    "crossed": (crossed, crossed_once),
    "mined": (mined, mined_once),
    "clipped": (clipped, clipped_once),
    "neighbours": (neighbours, neighbours_once),
    "smoothed": (smoothed, smoothed_once),
    "overlapped": (overlapped, overlapped_once),
    "ranked": (ranked, ranked_once),
}
