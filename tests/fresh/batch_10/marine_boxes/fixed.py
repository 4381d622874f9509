"""Ships in radar pictures: an anchor-free detector, whose boxes are compared with the true ones after each epoch."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torchvision import ops


def scenes(count, side, cell, seed):
    """Bright rectangles on a noisy sea; targets are laid out on the grid of the network's output."""
    rng = np.random.default_rng(seed)
    pictures = rng.normal(0, 0.3, (count, 1, side, side)).astype(np.float32)
    grid = side // cell
    targets, boxes = np.zeros((count, 5, grid, grid), np.float32), []
    for n in range(count):
        centres, sizes = rng.uniform(10, side - 10, (6, 2)), rng.uniform(6, 16, (6, 2))
        own = np.concatenate([centres - sizes / 2, centres + sizes / 2], 1)
        for (x, y), (w, h), (x1, y1, x2, y2) in zip(centres, sizes, own.astype(int), strict=True):
            pictures[n, 0, max(y1, 0) : y2, max(x1, 0) : x2] += 1
            column, row = int(x // cell), int(y // cell)
            targets[n, :, row, column] = 1, x / cell - column, y / cell - row, np.log(w / cell), np.log(h / cell)
        boxes.append(own.astype(np.float32))
    return torch.from_numpy(pictures), torch.from_numpy(targets), boxes


def conv(inputs, outputs, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class Detector(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.body = nn.Sequential(
            conv(1, width, 2), conv(width, 2 * width, 2), conv(2 * width, 2 * width), conv(2 * width, 2 * width)
        )
        self.head = nn.Conv2d(2 * width, 5, 1)

    def forward(self, x):
        return self.head(self.body(x))


def detection_loss(output, target):
    there = target[:, 0]
    weight = 1 + 20 * there
    objectness = F.binary_cross_entropy_with_logits(output[:, 0], there, weight=weight)
    shape = (F.smooth_l1_loss(output[:, 1:], target[:, 1:], reduction="none").sum(1) * there).sum() / there.sum()
    return objectness + shape


def decode(output, cell):
    """Scores and corners of all cells of a batch."""
    rows, columns = torch.meshgrid(*(torch.arange(n) for n in output.shape[-2:]), indexing="ij")
    centre = (torch.stack([columns, rows]) + output[:, 1:3]) * cell
    half = output[:, 3:].clamp(max=3).exp() * cell / 2
    corners = torch.cat([centre - half, centre + half], 1)
    return output[:, 0].sigmoid().flatten(1), corners.flatten(2).transpose(1, 2)


def overlap(box, others):
    left, right = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    both = (right - left).clip(min=0).prod(1)
    return both / ((box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1) - both + 1e-6)


def nms(boxes, scores, threshold):
    return ops.nms(boxes, scores, threshold)


def evaluate(model, pictures, truth, cell):
    """Share of the ships that one of the first 20 boxes covers by half."""
    model.eval()
    found = total = 0
    for start in range(0, len(pictures), 32):
        with torch.no_grad():
            scores, corners = decode(model(pictures[start : start + 32]), cell)
        for n, (score, box) in enumerate(zip(scores, corners, strict=True)):
            likely = score > 0.05
            kept = box[likely][nms(box[likely], score[likely], 0.5)][:20].numpy()
            for ship in truth[start + n]:
                found += bool(len(kept) and overlap(ship, kept).max() >= 0.5)
                total += 1
    model.train()
    return found / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=int, default=320)
    parser.add_argument("--held-out", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    cell = 4
    pictures, targets, _ = scenes(args.scenes, 128, cell, seed=1)
    held_out, _, truth = scenes(args.held_out, 128, cell, seed=2)
    model = Detector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        for index in torch.randperm(args.scenes).split(args.batch_size):
            loss = detection_loss(model(pictures[index]), targets[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        recall = evaluate(model, held_out, truth, cell)
        print(f"epoch {epoch}: loss {loss.item():.4f} recall {recall:.3f}")


if __name__ == "__main__":
    main()
