"""Operations on boxes."""

import torch


def corners(boxes):
    """From centre and size to the two corners."""
    centre, size = boxes[..., :2], boxes[..., 2:]
    return torch.cat([centre - size / 2, centre + size / 2], -1)


def area(boxes):
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def generalized_iou(a, b):
    """Of all boxes in a with all boxes in b, both given by corners."""
    low, high = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
    inner = (high - low).clamp(min=0).prod(-1)
    union = area(a)[:, None] + area(b)[None] - inner
    low, high = torch.min(a[:, None, :2], b[None, :, :2]), torch.max(a[:, None, 2:], b[None, :, 2:])
    hull = (high - low).clamp(min=0).prod(-1)
    return inner / union - (hull - union) / hull


def aligned_generalized_iou(a, b):
    """Of each box in a with the box in b at the same place."""
    inner = (torch.min(a[:, 2:], b[:, 2:]) - torch.max(a[:, :2], b[:, :2])).clamp(min=0).prod(-1)
    hull = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).clamp(min=0).prod(-1)
    union = area(a) + area(b) - inner
    return inner / union - (hull - union) / hull
