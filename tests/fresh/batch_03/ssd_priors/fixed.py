"""A single-shot detector on drawn rectangles: multi-scale heads, matching, multibox loss."""

from itertools import product
from math import ceil, sqrt

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.ops import box_iou

CFG = {
    "image_size": 96,
    "steps": [4, 8, 16],
    "min_sizes": [[12, 18], [24, 34], [44, 60]],
    "aspect_ratios": [1.0, 0.5, 2.0],
    "variance": [0.1, 0.2],
    "classes": 4,
}


class PriorBox:
    """Default boxes in centre-size form, for all cells of all feature maps."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.feature_maps = [ceil(cfg["image_size"] / step) for step in cfg["steps"]]

    def forward(self):
        mean, size = [], self.cfg["image_size"]
        for k, cells in enumerate(self.feature_maps):
            for i, j in product(range(cells), repeat=2):
                cx = (j + 0.5) * self.cfg["steps"][k] / size
                cy = (i + 0.5) * self.cfg["steps"][k] / size
                for min_size in self.cfg["min_sizes"][k]:
                    for ratio in self.cfg["aspect_ratios"]:
                        mean += [cx, cy, min_size / size * sqrt(ratio), min_size / size / sqrt(ratio)]
        return torch.Tensor(mean).view(-1, 4).clamp_(max=1, min=0)


def point_form(boxes):
    return torch.cat([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], dim=1)


def encode(matched, priors, variance):
    centre = ((matched[:, :2] + matched[:, 2:]) / 2 - priors[:, :2]) / (variance[0] * priors[:, 2:])
    size = torch.log((matched[:, 2:] - matched[:, :2]) / priors[:, 2:]) / variance[1]
    return torch.cat([centre, size], dim=1)


def conv(inp, out, stride):
    return nn.Sequential(nn.Conv2d(inp, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True))


class SSD(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.register_buffer("priors", PriorBox(cfg).forward())
        per_cell = len(cfg["min_sizes"][0]) * len(cfg["aspect_ratios"])
        self.base = nn.Sequential(conv(3, 8, 2), conv(8, 16, 2))
        self.extras = nn.ModuleList([conv(16, 24, 2), conv(24, 24, 2)])
        widths = (16, 24, 24)
        self.loc = nn.ModuleList([nn.Conv2d(width, per_cell * 4, 3, padding=1) for width in widths])
        self.conf = nn.ModuleList([nn.Conv2d(width, per_cell * cfg["classes"], 3, padding=1) for width in widths])

    def forward(self, x):
        sources = [self.base(x)]
        for extra in self.extras:
            sources.append(extra(sources[-1]))
        loc = [head(s).permute(0, 2, 3, 1).flatten(1) for head, s in zip(self.loc, sources)]
        conf = [head(s).permute(0, 2, 3, 1).flatten(1) for head, s in zip(self.conf, sources)]
        conf = torch.cat(conf, 1).view(len(x), -1, self.cfg["classes"])
        return torch.cat(loc, 1).view(len(x), -1, 4), conf, self.priors


def multibox_loss(predictions, targets, variance):
    loc, conf, priors = predictions
    corners = point_form(priors)
    loc_t, conf_t = torch.zeros_like(loc), torch.zeros(loc.shape[:2], dtype=torch.long)
    for i, (boxes, labels) in enumerate(targets):
        overlap, best = box_iou(corners, boxes).max(dim=1)
        conf_t[i] = torch.where(overlap > 0.45, labels[best], 0)
        loc_t[i] = encode(boxes[best], priors, variance)
    positive = conf_t > 0
    count = positive.sum().clamp(min=1)
    loss_l = F.smooth_l1_loss(loc[positive], loc_t[positive], reduction="sum")
    loss_c = F.cross_entropy(conf.flatten(0, 1), conf_t.flatten(), reduction="none").view_as(conf_t)
    background = loss_c.masked_fill(positive, 0).flatten().topk(min(int(3 * count), conf_t.numel())).values
    return (loss_l + loss_c[positive].sum() + background.sum()) / count


def make_images(count, generator):
    size, images, targets = CFG["image_size"], [], []
    for _ in range(count):
        image = 0.1 * torch.rand(3, size, size, generator=generator)
        corner = torch.randint(4, 50, (2, 2), generator=generator)
        extent = torch.randint(14, 44, (2, 2), generator=generator)
        labels = torch.randint(1, CFG["classes"], (2,), generator=generator)
        for (x, y), (w, h), label in zip(corner.tolist(), extent.tolist(), labels.tolist()):
            image[label - 1, y : y + h, x : x + w] = 1.0
        images.append(image)
        targets.append((torch.cat([corner, corner + extent], dim=1) / size, labels))
    return torch.stack(images), targets


if __name__ == "__main__":
    torch.manual_seed(4)
    images, targets = make_images(192, torch.Generator().manual_seed(9))
    net = SSD(CFG)
    optimizer = torch.optim.SGD(net.parameters(), lr=5e-3, momentum=0.9, weight_decay=5e-4)
    for iteration in range(200):
        rows = torch.randint(len(images), (2,))
        loss = multibox_loss(net(images[rows]), [targets[row] for row in rows.tolist()], CFG["variance"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if iteration % 40 == 39:
            print(f"iter {iteration + 1} || loss {loss.item():.4f}")
