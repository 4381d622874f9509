"""One-stage detector on synthetic shapes: anchors, grid targets, training script."""

import argparse
import os
import random
import shutil
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ANCHORS = torch.tensor([[6.0, 6.0], [12.0, 12.0], [20.0, 20.0]])


def shapes(batch, size, rng):
    """Images with one to three bright rectangles, and their boxes as (image, x, y, w, h)."""
    images, boxes = torch.rand(batch, 3, size, size) * 0.2, []
    for i in range(batch):
        for _ in range(rng.randint(1, 3)):
            w, h = rng.randint(5, 22), rng.randint(5, 22)
            x, y = rng.randint(0, size - w), rng.randint(0, size - h)
            images[i, rng.randrange(3), y : y + h, x : x + w] = 1.0
            boxes.append([i, x + w / 2, y + h / 2, w, h])
    return images, torch.tensor(boxes)


def build_targets(boxes, grid, stride):
    ratio = torch.minimum(boxes[:, None, 3:], ANCHORS) / torch.maximum(boxes[:, None, 3:], ANCHORS)
    best = ratio.prod(-1).argmax(1)
    cell = (boxes[:, 1:3] / stride).long().clamp(max=grid - 1)
    where = (boxes[:, 0].long(), best, cell[:, 1], cell[:, 0])
    offset = boxes[:, 1:3] / stride - cell
    return where, torch.cat([offset, torch.log(boxes[:, 3:] / ANCHORS[best])], 1)


class Darknet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        blocks, chans = [], [3, width, 2 * width, 4 * width, 8 * width]
        for i in range(4):
            blocks += [nn.Conv2d(chans[i], chans[i + 1], 3, 2 if i < 3 else 1, 1, bias=False)]
            blocks += [nn.BatchNorm2d(chans[i + 1]), nn.LeakyReLU(0.1)]
        self.body = nn.Sequential(*blocks)
        self.head = nn.Conv2d(chans[-1], 3 * 5, 1)

    def forward(self, x):
        y = self.head(self.body(x))
        b, _, g, _ = y.shape
        return y.view(b, 3, 5, g, g).permute(0, 1, 3, 4, 2)


def compute_loss(pred, boxes, stride=8):
    where, target = build_targets(boxes, pred.shape[2], stride)
    chosen = pred[where]
    xy = F.mse_loss(torch.sigmoid(chosen[:, :2]), target[:, :2])
    wh = F.mse_loss(chosen[:, 2:4], target[:, 2:])
    truth = torch.zeros_like(pred[..., 4])
    truth[where] = 1.0
    return xy + wh + F.binary_cross_entropy_with_logits(pred[..., 4], truth)


def run():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--img_size", type=int, default=64)
    parser.add_argument("--checkpoint_interval", type=int, default=1)
    opt = parser.parse_args()
    torch.manual_seed(3)
    rng = random.Random(3)
    checkpoints = tempfile.mkdtemp()
    model = Darknet()
    optimizer = torch.optim.Adam(model.parameters())
    try:
        for epoch in range(opt.epochs):
            start = time.time()
            for batch in range(opt.batches):
                imgs, targets = shapes(opt.batch_size, opt.img_size, rng)
                loss = compute_loss(model(imgs), targets)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                if epoch % opt.checkpoint_interval == 0 and batch == opt.batches - 1:
                    state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save(state, os.path.join(checkpoints, f"yolov3_ckpt_{epoch}.pth"))
            print(f"---- epoch {epoch} loss {loss.item():.3f} took {time.time() - start:.1f}s")
    finally:
        shutil.rmtree(checkpoints)


if __name__ == "__main__":
    run()
