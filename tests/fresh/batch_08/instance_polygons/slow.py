"""Box and class of the largest object in small pictures; records of pictures go through a mapper as in detectors."""

import copy
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE, CLASSES = 48, 5


def outline(rng, x, y, radius, sides):
    """Points around an object as in annotation files: x and y in turns."""
    angles = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    reach = radius * (1 + 0.15 * np.cos(sides * angles)) + rng.normal(0, 0.2, 48)
    return np.stack([x + reach * np.cos(angles), y + reach * np.sin(angles)], 1).round(2).ravel().tolist()


def load_records(count, seed):
    """One dictionary for each picture, as the loaders of common annotation formats give them."""
    rng = np.random.default_rng(seed)
    ys, xs = np.mgrid[:SIZE, :SIZE]
    colours = np.random.default_rng(4).uniform(0.3, 1, (CLASSES, 3))
    pictures = rng.normal(0, 0.1, (count, 3, SIZE, SIZE)).astype(np.float32)
    records = []
    for index in range(count):
        annotations = []
        for _ in range(int(rng.integers(2, 7))):
            x, y, radius = rng.uniform(8, 40), rng.uniform(8, 40), rng.uniform(3, 9)
            label = int(rng.integers(0, CLASSES))
            inside = (xs - x) ** 2 + (ys - y) ** 2 < radius**2
            pictures[index][:, inside] = colours[label][:, None]
            annotations.append(
                {
                    "bbox": [x - radius, y - radius, x + radius, y + radius],
                    "segmentation": [outline(rng, x, y, radius, label + 2)],
                    "category_id": label,
                    "iscrowd": 0,
                }
            )
        records.append({"image_id": index, "height": SIZE, "width": SIZE, "annotations": annotations})
    return records, torch.from_numpy(pictures)


class Mapper:
    """Turns a record into what the model takes; the picture is mirrored half of the time."""

    def __init__(self, pictures, flip=0.5):
        self.pictures, self.flip = pictures, flip

    def __call__(self, record):
        record = copy.deepcopy(record)
        image = self.pictures[record["image_id"]]
        boxes = np.array([annotation["bbox"] for annotation in record.pop("annotations")], dtype=np.float32)
        labels = record.pop("labels")
        if torch.rand(()) < self.flip:
            image = image.flip(2)
            boxes[:, [0, 2]] = record["width"] - boxes[:, [2, 0]]
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        largest = int(areas.argmax())
        record["image"], record["box"] = image, torch.from_numpy(boxes[largest] / SIZE)
        record["label"] = labels[largest]
        return record


class Mapped(Dataset):
    def __init__(self, records, mapper):
        self.records, self.mapper = records, mapper
        for record in records:
            record["labels"] = [annotation["category_id"] for annotation in record["annotations"]]

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.mapper(self.records[index])


def collate(records):
    images = torch.stack([record["image"] for record in records])
    boxes = torch.stack([record["box"] for record in records])
    return images, boxes, torch.tensor([record["label"] for record in records])


class SingleBox(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        sizes = (3, width, 2 * width, 4 * width)
        layers = []
        for i, o in zip(sizes, sizes[1:]):
            layers += [nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
        self.backbone = nn.Sequential(*layers, nn.Flatten())
        self.box = nn.Linear(4 * width * 36, 4)
        self.label = nn.Linear(4 * width * 36, CLASSES)

    def forward(self, images):
        h = self.backbone(images)
        return self.box(h).sigmoid(), self.label(h)


def train(cfg):
    torch.manual_seed(cfg.seed)
    records, pictures = load_records(cfg.pictures, cfg.seed)
    dataset = Mapped(records, Mapper(pictures))
    loader = DataLoader(dataset, cfg.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    model = SingleBox()
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=1e-4)
    for epoch in range(cfg.epochs):
        totals = np.zeros(2)
        for images, boxes, labels in loader:
            predicted, logits = model(images)
            box_loss, label_loss = F.smooth_l1_loss(predicted, boxes, beta=0.1), F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            (box_loss + label_loss).backward()
            optimizer.step()
            totals += box_loss.item(), label_loss.item()
        box_loss, label_loss = totals / len(loader)
        print(f"epoch {epoch}: box {box_loss:.4f} class {label_loss:.4f}")


if __name__ == "__main__":
    train(SimpleNamespace(pictures=1600, batch_size=16, epochs=8, lr=0.02, seed=2))
