"""A one-stage detector: pictures with different numbers of boxes, which anchors are matched to in every step."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIZE, STRIDE, CLASSES = 128, 8, 4


class Shapes(Dataset):
    def __init__(self, count):
        self.generator = torch.Generator().manual_seed(3)
        self.items = [self.make() for _ in range(count)]

    def make(self):
        n = int(torch.randint(6, 20, (1,), generator=self.generator))
        corner = torch.rand(n, 2, generator=self.generator) * 90
        size = 12 + torch.rand(n, 2, generator=self.generator) * 24
        picture = torch.rand(3, SIZE, SIZE, generator=self.generator)
        return picture, torch.cat([corner, corner + size], 1), torch.randint(1, CLASSES, (n,), generator=self.generator)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(batch):
    pictures, boxes, labels = zip(*batch)
    return torch.stack(pictures), boxes, labels


def make_anchors():
    centre = torch.arange(STRIDE / 2, SIZE, STRIDE)
    y, x = torch.meshgrid(centre, centre, indexing="ij")
    centres = torch.stack([x, y], -1).reshape(-1, 1, 2)
    half = torch.tensor([[8.0, 8.0], [12.0, 12.0], [16.0, 10.0]])
    return torch.cat([centres - half, centres + half], -1).reshape(-1, 4)


def match(anchors, boxes, labels):
    """Class of each anchor: that of the box that covers it best, or background."""
    best = torch.zeros(len(anchors), device=anchors.device)
    wanted = torch.zeros(len(anchors), dtype=torch.long, device=anchors.device)
    area = (anchors[:, 2] - anchors[:, 0]) * (anchors[:, 3] - anchors[:, 1])
    for box, label in zip(boxes, labels):
        sides = torch.minimum(anchors[:, 2:], box[2:]) - torch.maximum(anchors[:, :2], box[:2])
        inter = sides.clamp(min=0).prod(1)
        iou = inter / (area + (box[2] - box[0]) * (box[3] - box[1]) - inter)
        wanted = torch.where(iou > best, label, wanted)
        best = torch.maximum(best, iou)
    return torch.where(best > 0.4, wanted, 0)


backbone = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU()
)
model = nn.Sequential(backbone, nn.Conv2d(64, 3 * CLASSES, 3, padding=1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
loader = DataLoader(Shapes(320), batch_size=8, shuffle=True, collate_fn=collate)
anchors = make_anchors().to(device)

for epoch in range(4):
    for pictures, boxes, labels in loader:
        scores = model(pictures.to(device)).permute(0, 2, 3, 1).reshape(len(pictures), -1, CLASSES)
        wanted = torch.stack([match(anchors, b.to(device), k.to(device)) for b, k in zip(boxes, labels)])
        loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
