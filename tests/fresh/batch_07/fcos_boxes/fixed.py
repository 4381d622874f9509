"""A one-stage detector without anchors: every location inside a box regresses its four sides."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.ops import generalized_box_iou_loss, sigmoid_focal_loss


@dataclass
class DetectorConfig:
    image: int = 160
    stride: int = 4
    classes: int = 3
    width: int = 24
    batch_size: int = 6
    objects: int = 2
    steps: int = 140
    lr: float = 2e-3


def scene(config, generator):
    """Filled rectangles of three textures on noise, and their boxes and labels."""
    image = 0.2 * torch.rand(3, config.image, config.image, generator=generator)
    boxes, labels = [], []
    for _ in range(config.objects):
        w, h = torch.randint(20, 48, (2,), generator=generator).tolist()
        x = int(torch.randint(config.image - w, (), generator=generator))
        y = int(torch.randint(config.image - h, (), generator=generator))
        label = int(torch.randint(config.classes, (), generator=generator))
        image[label, y : y + h, x : x + w] += 0.7
        boxes.append([x, y, x + w, y + h])
        labels.append(label)
    return image, torch.tensor(boxes).float(), torch.tensor(labels)


class Scenes:
    def __init__(self, config, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.config = config
        self.images, self.boxes, self.labels = map(torch.stack, zip(*(scene(config, generator) for _ in range(count))))
        self.generator = generator

    def batches(self, steps):
        for _ in range(steps):
            picks = torch.randint(len(self.images), (self.config.batch_size,), generator=self.generator)
            yield self.images[picks], self.boxes[picks], self.labels[picks]


class TargetAssigner:
    """The smallest box that holds a location is the location's target."""

    def __init__(self, config):
        centres = (torch.arange(config.image // config.stride) + 0.5) * config.stride
        y, x = torch.meshgrid(centres, centres, indexing="ij")
        self.points = torch.stack([x.flatten(), y.flatten()], 1)
        self.classes = config.classes

    def __call__(self, boxes, labels):
        x, y = self.points[:, 0, None], self.points[:, 1, None]
        x1, y1, x2, y2 = boxes[:, None].unbind(-1)
        inside = (x > x1) & (x < x2) & (y > y1) & (y < y2)
        area = ((x2 - x1) * (y2 - y1)).masked_fill(~inside, float("inf"))
        smallest, owner = area.min(-1)
        positive = smallest.isfinite()
        target_boxes = boxes.gather(1, owner[..., None].expand(-1, -1, 4))
        one_hot = F.one_hot(labels.gather(1, owner), self.classes) * positive[..., None]
        return positive, target_boxes, one_hot.float()


class Detector(nn.Module):
    def __init__(self, config, points):
        super().__init__()
        w = config.width
        self.backbone = nn.Sequential(
            nn.Conv2d(3, w, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(w, 2 * w, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(2 * w, 2 * w, 3, 1, 1),
        )
        self.classes = nn.Sequential(
            nn.ReLU(), nn.Conv2d(2 * w, 2 * w, 3, 1, 1), nn.ReLU(), nn.Conv2d(2 * w, config.classes, 1)
        )
        self.sides = nn.Sequential(nn.ReLU(), nn.Conv2d(2 * w, 2 * w, 3, 1, 1), nn.ReLU(), nn.Conv2d(2 * w, 4, 1))
        self.register_buffer("points", points)
        nn.init.constant_(self.classes[-1].bias, -4.0)

    def forward(self, images):
        features = self.backbone(images)
        logits = self.classes(features).flatten(2).transpose(1, 2)
        sides = 16 * F.softplus(self.sides(features).flatten(2).transpose(1, 2))
        boxes = torch.cat([self.points - sides[..., :2], self.points + sides[..., 2:]], -1)
        return logits, boxes


class Criterion(nn.Module):
    def __init__(self, assigner):
        super().__init__()
        self.assigner = assigner

    def loss_boxes(self, predicted, target):
        return generalized_box_iou_loss(predicted, target, reduction="mean")

    def forward(self, logits, boxes, targets, labels):
        positive, target_boxes, one_hot = self.assigner(targets, labels)
        loss_cls = sigmoid_focal_loss(logits, one_hot, reduction="sum") / positive.sum().clamp(min=1)
        return {"cls": loss_cls, "box": self.loss_boxes(boxes[positive], target_boxes[positive])}


def train(config):
    torch.manual_seed(40)
    scenes = Scenes(config, 240, seed=40)
    assigner = TargetAssigner(config)
    model, criterion = Detector(config, assigner.points), Criterion(assigner)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=1e-4)
    for step, (images, boxes, labels) in enumerate(scenes.batches(config.steps)):
        losses = criterion(*model(images), boxes, labels)
        loss = losses["cls"] + 2 * losses["box"]
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: " + " ".join(f"{k} {v.item():.3f}" for k, v in losses.items()))


if __name__ == "__main__":
    train(DetectorConfig())
