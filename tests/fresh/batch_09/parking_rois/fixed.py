"""Free or taken: the spaces of a car park, pooled from the feature map of one camera picture (the R-CNN way)."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.ops import roi_pool


def car_parks(count, size, spaces, seed):
    """Grey pictures with coloured cars on some of the marked spaces; boxes are x1, y1, x2, y2."""
    g = torch.Generator().manual_seed(seed)
    images = 0.4 + 0.05 * torch.randn(count, 3, size, size, generator=g)
    boxes = torch.empty(count, spaces, 4)
    taken = (torch.rand(count, spaces, generator=g) < 0.5).float()
    for i in range(count):
        corner = (torch.rand(spaces, 2, generator=g) * (size - 40)).floor()
        extent = (torch.rand(spaces, 2, generator=g) * 16 + 16).floor()
        boxes[i] = torch.cat([corner, corner + extent], dim=1)
        for space in range(spaces):
            if taken[i, space]:
                x1, y1, x2, y2 = boxes[i, space].int().tolist()
                images[i, :, y1 + 3 : y2 - 3, x1 + 3 : x2 - 3] = torch.rand(3, 1, 1, generator=g)
    return images, boxes, taken


class Backbone(nn.Module):
    """Features at a quarter of the resolution."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width // 2, 5, 2, 2),
            nn.BatchNorm2d(width // 2),
            nn.ReLU(inplace=True),
            nn.Conv2d(width // 2, width, 3, 2, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, 1, 1),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.layers(x)


class RoIHead(nn.Module):
    def __init__(self, width, pooled, scale):
        super().__init__()
        self.pooled, self.scale = pooled, scale
        self.mlp = nn.Sequential(nn.Linear(width * pooled * pooled, 96), nn.ReLU(), nn.Linear(96, 1))

    def pool(self, features, boxes):
        """Each box, rounded to cells, max-pooled to the same grid."""
        return roi_pool(features, list(boxes), self.pooled, self.scale)

    def forward(self, features, boxes):
        return self.mlp(self.pool(features, boxes).flatten(1)).view(boxes.shape[:2])


class OccupancyNet(nn.Module):
    def __init__(self, width=48, pooled=4):
        super().__init__()
        self.backbone = Backbone(width)
        self.head = RoIHead(width, pooled, scale=0.25)

    def forward(self, images, boxes):
        return self.head(self.backbone(images), boxes)


class Trainer:
    def __init__(self, model, args):
        self.model, self.args = model, args
        self.optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, args.epochs)

    def step(self, images, boxes, taken):
        logits = self.model(images, boxes)
        loss = F.binary_cross_entropy_with_logits(logits, taken)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach(), ((logits > 0) == taken.bool()).float().mean()

    def fit(self, data):
        for epoch in range(self.args.epochs):
            results = []
            for index in torch.randperm(len(data[0])).split(self.args.batch_size):
                results.append(torch.stack(self.step(*(part[index] for part in data))))
            self.schedule.step()
            loss, accuracy = torch.stack(results).mean(0).tolist()
            print(f"epoch {epoch}: loss {loss:.4f} accuracy {accuracy:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=240)
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--spaces", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()
    torch.manual_seed(4)
    Trainer(OccupancyNet(), args).fit(car_parks(args.images, args.size, args.spaces, seed=9))


if __name__ == "__main__":
    main()
