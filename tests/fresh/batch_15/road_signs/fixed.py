"""Road signs in dash camera pictures: a small anchor-free detector, average precision after every epoch."""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision.ops import box_iou, generalized_box_iou_loss, nms, sigmoid_focal_loss

SIGNS = 3
STRIDE = 8


class SignScenes(Dataset):
    """Coloured squares on a noisy street; the colour is the class."""

    def __init__(self, count, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.images = 0.25 * torch.rand(count, 3, size, size, generator=g)
        self.targets = []
        for image in self.images:
            boxes, labels = [], []
            for _ in range(int(torch.randint(1, 5, (1,), generator=g))):
                width = int(torch.randint(12, 28, (1,), generator=g))
                x, y = torch.randint(0, size - width, (2,), generator=g).tolist()
                label = int(torch.randint(0, SIGNS, (1,), generator=g))
                image[label, y : y + width, x : x + width] += 0.7
                boxes.append([x, y, x + width, y + width])
                labels.append(label)
            self.targets.append({"boxes": torch.tensor(boxes, dtype=torch.float32), "labels": torch.tensor(labels)})

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.targets[index]


def collate(samples):
    images, targets = zip(*samples)
    return torch.stack(images), list(targets)


class SignDetector(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        layers, inside = [], 3
        for outside, stride in ((width, 2), (width, 1), (2 * width, 2), (2 * width, 1), (4 * width, 2), (4 * width, 1)):
            layers += [nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.SiLU()]
            inside = outside
        self.body = nn.Sequential(*layers)
        self.scores = nn.Conv2d(inside, SIGNS, 3, padding=1)
        self.boxes = nn.Conv2d(inside, 4, 3, padding=1)
        nn.init.constant_(self.scores.bias, -3.0)

    def forward(self, images):
        features = self.body(images)
        height, width = features.shape[-2:]
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        centres = (torch.stack([x, y], -1).view(-1, 2) + 0.5) * STRIDE
        scores = self.scores(features).flatten(2).transpose(1, 2)
        sides = F.softplus(self.boxes(features)).flatten(2).transpose(1, 2) * STRIDE
        return scores, torch.cat([centres - sides[..., :2], centres + sides[..., 2:]], -1), centres


def assign(centres, targets):
    """For each cell the box that it lies in, the smallest first, or none."""
    labels, boxes = [], []
    for target in targets:
        box = target["boxes"]
        inside = (centres[:, None] > box[:, :2]).all(-1) & (centres[:, None] < box[:, 2:]).all(-1)
        area = (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])
        cost = torch.where(inside, area, torch.inf)
        smallest, which = cost.min(1)
        labels.append(torch.where(smallest.isinf(), SIGNS, target["labels"][which]))
        boxes.append(box[which])
    return torch.stack(labels), torch.stack(boxes)


def detection_loss(scores, boxes, centres, targets):
    labels, wanted = assign(centres, targets)
    positive = labels < SIGNS
    count = positive.sum().clamp(min=1)
    onehot = F.one_hot(labels, SIGNS + 1)[..., :SIGNS].float()
    class_loss = sigmoid_focal_loss(scores, onehot, reduction="sum") / count
    box_loss = generalized_box_iou_loss(boxes[positive], wanted[positive], reduction="sum") / count
    return class_loss + box_loss


def postprocess(scores, boxes, candidates=300, threshold=0.5):
    """Detections of one image as boxes, scores and labels, best first."""
    flat, index = scores.sigmoid().flatten().topk(min(candidates, scores.numel()))
    cell, label = index // SIGNS, index % SIGNS
    chosen = boxes[cell]
    keep = nms(chosen + 1000.0 * label.unsqueeze(1), flat, threshold)
    return chosen[keep], flat[keep], label[keep]


def average_precision(hits, scores, positives):
    hits = hits[scores.argsort(descending=True)].float()
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
    return (precision * hits).sum() / max(positives, 1)


@torch.no_grad()
def evaluate(model, loader, overlap=0.5):
    model.eval()
    hits, scores, positives = [], [], 0
    for images, targets in loader:
        class_scores, boxes, _ = model(images)
        for i, target in enumerate(targets):
            found, score, label = postprocess(class_scores[i], boxes[i])
            same = label[:, None] == target["labels"]
            match = (box_iou(found, target["boxes"]) >= overlap) & same
            first = match.int().cumsum(0) == 1
            hits.append((match & first).any(1))
            scores.append(score)
            positives += len(target["labels"])
    model.train()
    return average_precision(torch.cat(hits), torch.cat(scores), positives).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(5)
    train_loader = DataLoader(SignScenes(256, args.size, 1), args.batch_size, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(SignScenes(64, args.size, 2), args.batch_size, collate_fn=collate)
    model = SignDetector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    best = -1.0
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for images, targets in train_loader:
                loss = detection_loss(*model(images), targets)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 10.0)
                optimizer.step()
                total += loss.detach()
            ap = evaluate(model, val_loader)
            print(f"epoch {epoch}: loss {total / len(train_loader):.3f} AP50 {ap:.3f}")
            if ap > best:
                best = ap
                torch.save(model.state_dict(), Path(folder) / "best.pt")


if __name__ == "__main__":
    main()
