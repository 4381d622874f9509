"""Instance centres and masks of herring in trawl pictures, from records with one bitmap for each fish."""

import argparse
import itertools
import logging
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

logger = logging.getLogger("herring")


def draw_fish(rng, size):
    """A tilted ellipse as bitmap."""
    cy, cx = rng.uniform(0.15, 0.85, 2) * size
    long, short = rng.uniform(0.06, 0.16) * size, rng.uniform(0.02, 0.06) * size
    angle = rng.uniform(0, np.pi)
    yy, xx = np.mgrid[:size, :size]
    u = (xx - cx) * np.cos(angle) + (yy - cy) * np.sin(angle)
    v = -(xx - cx) * np.sin(angle) + (yy - cy) * np.cos(angle)
    return ((u / long) ** 2 + (v / short) ** 2) < 1.0


def build_records(count: int, size: int, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    fishes = [draw_fish(rng, size) for _ in range(60)]
    records = []
    for index in range(count):
        picture = rng.integers(0, 60, (size, size), dtype=np.uint8)
        annotations = []
        for pick in rng.integers(0, len(fishes), rng.integers(20, 40)):
            bitmap = np.roll(fishes[pick], tuple(rng.integers(-20, 20, 2)), axis=(0, 1))
            picture[bitmap] = np.minimum(picture[bitmap].astype(int) + 120, 255)
            ys, xs = np.nonzero(bitmap)
            box = [int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1]
            annotations.append({"category_id": 0, "bbox": box, "segmentation": bitmap.astype(np.float32), "iscrowd": 0})
        records.append({"image_id": index, "image": picture, "annotations": annotations, "height": size, "width": size})
    return records


class Mapper:
    """A record of the catalogue becomes what the network trains on: a random crop, a mask and a map of centres."""

    def __init__(self, crop: int, train: bool = True):
        self.crop, self.train = crop, train

    def __call__(self, record: dict[str, Any]) -> dict[str, torch.Tensor]:
        record = {**record, "annotations": [dict(annotation) for annotation in record["annotations"]]}
        size, crop = record["height"], self.crop
        y, x = np.random.randint(0, size - crop + 1, 2) if self.train else ((size - crop) // 2,) * 2
        image = record.pop("image")[y : y + crop, x : x + crop]
        mask = np.zeros((crop, crop), np.float32)
        centres = np.zeros((crop // 4, crop // 4), np.float32)
        for annotation in record.pop("annotations"):
            if annotation.pop("iscrowd"):
                continue
            x0, y0, x1, y1 = annotation["bbox"]
            if x1 <= x or y1 <= y or x0 >= x + crop or y0 >= y + crop:
                continue
            np.maximum(mask, annotation["segmentation"][y : y + crop, x : x + crop], out=mask)
            cy, cx = ((y0 + y1) // 2 - y) // 4, ((x0 + x1) // 2 - x) // 4
            if 0 <= cy < crop // 4 and 0 <= cx < crop // 4:
                centres[cy, cx] = 1.0
        if self.train and np.random.rand() < 0.5:
            image, mask, centres = image[:, ::-1], mask[:, ::-1], centres[:, ::-1]
        record["image"] = torch.from_numpy(np.ascontiguousarray(image, np.float32) / 255.0)[None]
        record["mask"] = torch.from_numpy(np.ascontiguousarray(mask))[None]
        record["centres"] = torch.from_numpy(np.ascontiguousarray(centres))[None]
        return record


class MapDataset(Dataset):
    def __init__(self, records, mapper):
        self.records, self.mapper = records, mapper

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.mapper(self.records[index])


class TrainingSampler(Sampler):
    """An endless stream of shuffled indices."""

    def __init__(self, size, seed=0):
        self.size, self.seed = size, seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        while True:
            yield from torch.randperm(self.size, generator=generator).tolist()


class FishNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down1 = self.block(1, width, 2)
        self.down2 = self.block(width, 2 * width, 2)
        self.body = nn.Sequential(self.block(2 * width, 2 * width, 1), self.block(2 * width, 2 * width, 1))
        self.centre_head = nn.Conv2d(2 * width, 1, 1)
        self.mask_head = nn.Sequential(nn.Conv2d(2 * width, 16, 1), nn.PixelShuffle(4))

    @staticmethod
    def block(n_in, n_out, stride):
        return nn.Sequential(nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(True))

    def forward(self, image):
        x = self.body(self.down2(self.down1(image)))
        return self.mask_head(x), self.centre_head(x)

    def losses(self, batch):
        mask, centres = self(batch["image"])
        return {
            "mask": F.binary_cross_entropy_with_logits(mask, batch["mask"]),
            "centre": F.binary_cross_entropy_with_logits(centres, batch["centres"], pos_weight=torch.tensor(20.0)),
        }


@torch.no_grad()
def test_iou(model, loader):
    model.eval()
    inter = union = 0
    for batch in loader:
        found, true = model(batch["image"])[0] > 0, batch["mask"] > 0.5
        inter, union = inter + (found & true).sum(), union + (found | true).sum()
    model.train()
    return (inter / union).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-iter", type=int, default=240)
    parser.add_argument("--ims-per-batch", type=int, default=6)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--crop", type=int, default=96)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    np.random.seed(0)

    records = build_records(64, args.size, seed=2)
    train = MapDataset(records[:56], Mapper(args.crop))
    test = MapDataset(records[56:], Mapper(args.crop, train=False))
    loader = DataLoader(train, args.ims_per_batch, sampler=TrainingSampler(len(train)))
    test_loader = DataLoader(test, args.ims_per_batch)
    model = FishNet()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [int(args.max_iter * 0.8)])
    for iteration, batch in enumerate(itertools.islice(loader, args.max_iter), 1):
        losses = model.losses(batch)
        total = sum(losses.values())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        scheduler.step()
        if iteration % 50 == 0:
            parts = ", ".join(f"{name} {value.item():.3f}" for name, value in losses.items())
            logger.info("iter %d: %s, test IoU %.3f", iteration, parts, test_iou(model, test_loader))


if __name__ == "__main__":
    main()
