"""A one-stage detector with anchors on a grid, trained on pictures of coloured boxes (JPEG files, YOLO text labels)."""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

ANCHORS = torch.tensor([[1.0, 1.0], [2.2, 1.2], [1.2, 2.4], [3.0, 3.0], [5.0, 4.0]])  # in cells
CLASSES, GRID, STRIDE = 4, 16, 8


def paint_pictures(root, count, seed):
    rng = np.random.default_rng(seed)
    size = GRID * STRIDE
    colours = np.array([[220, 60, 60], [60, 200, 80], [70, 90, 220], [220, 200, 60]])
    for i in range(count):
        picture = rng.integers(0, 60, (size, size, 3))
        lines = []
        for _ in range(rng.integers(8, 20)):
            w, h = rng.uniform(6, 30, 2)
            x, y, c = rng.uniform(w / 2, size - w / 2 - 1), rng.uniform(h / 2, size - h / 2 - 1), rng.integers(CLASSES)
            picture[int(y - h / 2) : int(y + h / 2), int(x - w / 2) : int(x + w / 2)] = colours[c]
            lines.append(f"{c} {x / size:.5f} {y / size:.5f} {w / size:.5f} {h / size:.5f}")
        Image.fromarray(picture.astype(np.uint8)).save(root / f"{i:04d}.jpg")
        (root / f"{i:04d}.txt").write_text("\n".join(lines))


class CachedDetection(Dataset):
    """Everything is read once: pictures stay in memory as bytes."""

    def __init__(self, root):
        self.pictures, self.labels = [], []
        for path in sorted(root.glob("*.jpg")):
            self.pictures.append(torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1).contiguous())
            self.labels.append(torch.from_numpy(np.loadtxt(path.with_suffix(".txt"), dtype=np.float32, ndmin=2)))

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        return self.pictures[i], self.labels[i]


def collate(batch):
    """Targets of all pictures in one tensor: picture, class, x, y, w, h."""
    pictures, labels = zip(*batch)
    numbers = torch.repeat_interleave(torch.arange(len(labels)), torch.tensor([len(label) for label in labels]))
    return torch.stack(pictures).float() / 255, torch.cat([numbers[:, None].float(), torch.cat(labels)], dim=1)


def conv(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1, inplace=True)
    )


class GridDetector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            conv(3, 16, 2), conv(16, 32, 2), conv(32, 64), conv(64, 64, 2), conv(64, 128), conv(128, 128)
        )
        self.head = nn.Conv2d(128, len(ANCHORS) * (5 + CLASSES), 1)

    def forward(self, x):
        out = self.head(self.backbone(x))
        return out.view(len(x), len(ANCHORS), 5 + CLASSES, GRID, GRID).permute(0, 1, 3, 4, 2)


def wh_iou(wh, anchors):
    inter = torch.min(wh[:, None], anchors[None]).prod(dim=2)
    return inter / (wh.prod(dim=1)[:, None] + anchors.prod(dim=1)[None] - inter)


def build_targets(targets, batch_size):
    """Which cell and anchor answers for which box, and what it should say."""
    mask = torch.zeros(batch_size, len(ANCHORS), GRID, GRID, dtype=torch.bool)
    box = torch.zeros(batch_size, len(ANCHORS), GRID, GRID, 4)
    label = torch.zeros(batch_size, len(ANCHORS), GRID, GRID, dtype=torch.long)
    b, c = targets[:, 0].long(), targets[:, 1].long()
    xy, wh = targets[:, 2:4] * GRID, targets[:, 4:] * GRID
    gi, gj = xy.long().unbind(dim=1)
    best = wh_iou(wh, ANCHORS).argmax(dim=1)
    mask[b, best, gj, gi] = True
    box[b, best, gj, gi] = torch.cat([xy - xy.floor(), torch.log(wh / ANCHORS[best])], dim=1)
    label[b, best, gj, gi] = c
    return mask, box, label


def detection_loss(out, targets):
    mask, box, label = build_targets(targets, len(out))
    objectness = F.binary_cross_entropy_with_logits(out[..., 4], mask.float())
    found, wanted = out[mask], box[mask]
    centre = F.mse_loss(found[:, :2].sigmoid(), wanted[:, :2])
    size = F.mse_loss(found[:, 2:4], wanted[:, 2:])
    return 5 * objectness + centre + size + F.cross_entropy(found[:, 5:], label[mask])


def main():
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as folder:
        paint_pictures(Path(folder), 384, seed=3)
        dataset = CachedDetection(Path(folder))
    loader = DataLoader(dataset, batch_size=16, shuffle=True, collate_fn=collate)
    model = GridDetector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, fused=True)
    for epoch in range(8):
        for i, (pictures, targets) in enumerate(loader):
            loss = detection_loss(model(pictures), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 12 == 0:
                print(f"[epoch {epoch}, batch {i}/{len(loader)}] loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
