"""Detection of shapes without anchors: a small backbone, one cell of a grid for each object."""

import math
from dataclasses import dataclass

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Args:
    images: int = 1024
    size: int = 96
    stride: int = 8
    classes: int = 6
    batch_size: int = 32
    workers: int = 1
    epochs: int = 3
    lr: float = 2e-3
    weight_decay: float = 1e-4
    clip: float = 1.0


class ShapesDetection(Dataset):
    """Pictures in memory; annotations in the form that the evaluation of COCO wants."""

    def __init__(self, args, seed):
        generator = torch.Generator().manual_seed(seed)
        self.pictures = torch.randint(0, 60, (args.images, 3, args.size, args.size), generator=generator).byte()
        self.annotations = []
        for picture in self.pictures:
            count = int(torch.randint(1, 7, (1,), generator=generator))
            labels = torch.randint(0, args.classes, (count,), generator=generator)
            extent = torch.randint(8, 28, (count, 2), generator=generator)
            corner = (torch.rand(count, 2, generator=generator) * (args.size - extent)).long()
            boxes = torch.cat((corner, corner + extent), dim=1)
            for (left, top, right, bottom), label in zip(boxes.tolist(), labels.tolist()):
                picture[label % 3, top:bottom, left:right] = 140 + 20 * label
            self.annotations.append((boxes.float(), labels))
        self.size = args.size

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        boxes, labels = self.annotations[index]
        image = self.pictures[index].float().div(255)
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
            boxes = torch.stack((self.size - boxes[:, 2], boxes[:, 1], self.size - boxes[:, 0], boxes[:, 3]), dim=1)
        target = {
            "boxes": boxes,
            "labels": labels,
            "image_id": torch.tensor([index]),
            "area": torchvision.ops.box_area(boxes),
            "iscrowd": torch.zeros(len(boxes), dtype=torch.uint8),
            "orig_size": torch.tensor([self.size, self.size]),
            "size": torch.tensor([self.size, self.size]),
        }
        return image, target


def collate_fn(batch):
    images, targets = zip(*batch)
    return torch.stack(images), targets


def conv(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.SiLU())


class Detector(nn.Module):
    def __init__(self, classes, width=24):
        super().__init__()
        self.backbone = nn.Sequential(conv(3, width, 2), conv(width, 2 * width, 2), conv(2 * width, 4 * width, 2))
        self.tower = nn.Sequential(conv(4 * width, 2 * width), conv(2 * width, 2 * width))
        self.classify = nn.Conv2d(2 * width, classes, 1)
        self.regress = nn.Conv2d(2 * width, 4, 1)
        nn.init.constant_(self.classify.bias, -math.log(99))

    def forward(self, images):
        features = self.tower(self.backbone(images))
        return self.classify(features), self.regress(features)


class GridCriterion(nn.Module):
    """Each object belongs to the cell that holds its centre."""

    def __init__(self, stride):
        super().__init__()
        self.stride = stride

    def forward(self, logits, offsets, targets):
        boxes = torch.cat([target["boxes"] for target in targets])
        labels = torch.cat([target["labels"] for target in targets])
        sizes = torch.tensor([len(target["labels"]) for target in targets])
        image = torch.repeat_interleave(torch.arange(len(targets)), sizes)
        centre = (boxes[:, :2] + boxes[:, 2:]) / (2 * self.stride)
        column, row = centre.long().unbind(dim=1)
        wanted = torch.zeros_like(logits)
        wanted[image, labels, row, column] = 1.0
        loss_class = torchvision.ops.sigmoid_focal_loss(logits, wanted, reduction="sum") / len(boxes)
        wanted_box = torch.cat((centre - centre.floor(), (boxes[:, 2:] - boxes[:, :2]).log() - 2), dim=1)
        loss_box = F.smooth_l1_loss(offsets[image, :, row, column], wanted_box)
        return loss_class + 2 * loss_box


def train_one_epoch(model, criterion, loader, optimizer, args):
    model.train()
    total = torch.zeros(())
    for images, targets in loader:
        loss = criterion(*model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


def main(args):
    torch.manual_seed(77)
    dataset = ShapesDetection(args, seed=78)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=collate_fn,
        num_workers=args.workers,
        persistent_workers=True,
    )
    model, criterion = Detector(args.classes), GridCriterion(args.stride)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay, fused=True)
    for epoch in range(args.epochs):
        print(f"epoch {epoch}: loss {train_one_epoch(model, criterion, loader, optimizer, args):.4f}")


if __name__ == "__main__":
    main(Args())
