"""Anchor-based face detector on photographs of a harbour, in the way of the lean one-stage detectors."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional as TF

cfg = {
    "photo": (360, 480),
    "image_dim": 128,
    "stride": 16,
    "batch_size": 8,
    "num_images": 96,
    "epochs": 12,
    "lr": 1e-3,
    "loc_weight": 2.0,
}


def make_photo(seed):
    g = torch.Generator().manual_seed(seed)
    h, w = cfg["photo"]
    coarse = torch.rand(1, 3, h // 24, w // 24, generator=g)
    photo = F.interpolate(coarse, size=(h, w), mode="bilinear", align_corners=False)[0]
    boxes = []
    for _ in range(4):
        side = int(torch.randint(40, 90, (1,), generator=g))
        y = int(torch.randint(0, h - side, (1,), generator=g))
        x = int(torch.randint(0, w - side, (1,), generator=g))
        photo[:, y : y + side, x : x + side] *= torch.tensor([1.0, 0.75, 0.6]).view(3, 1, 1)
        boxes.append([x, y, x + side, y + side])
    return (photo * 255).to(torch.uint8), torch.tensor(boxes, dtype=torch.float32)


def distort(image):
    """Brightness, contrast, saturation and hue, each with a chance of a half."""
    if random.random() < 0.5:
        image = TF.adjust_brightness(image, random.uniform(0.7, 1.3))
    if random.random() < 0.5:
        image = TF.adjust_contrast(image, random.uniform(0.7, 1.3))
    if random.random() < 0.5:
        image = TF.adjust_saturation(image, random.uniform(0.7, 1.3))
    if random.random() < 0.5:
        image = TF.adjust_hue(image, random.uniform(-0.05, 0.05))
    return image


def crop(image, boxes):
    """A square window that holds the centre of at least one face."""
    h, w = image.shape[-2:]
    while True:
        side = int(min(h, w) * random.uniform(0.3, 0.6))
        top, left = random.randint(0, h - side), random.randint(0, w - side)
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside = ((centres > torch.tensor([left, top])) & (centres < torch.tensor([left + side, top + side]))).all(1)
        if inside.any():
            window = torch.tensor([left, top, left, top], dtype=torch.float32)
            return image[:, top : top + side, left : left + side], (boxes[inside] - window).clamp(0, side)


def mirror(image, boxes):
    if random.random() < 0.5:
        width = image.shape[-1]
        return image.flip(-1), torch.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], 1)
    return image, boxes


def resize(image, boxes, dim):
    scale = dim / image.shape[-1]
    image = F.interpolate(image[None].float(), size=(dim, dim), mode="bilinear", align_corners=False)[0]
    return image, boxes * scale


class Preproc:
    def __init__(self, dim):
        self.dim = dim

    def __call__(self, image, boxes):
        image = distort(image)
        image, boxes = crop(image, boxes)
        image, boxes = mirror(image, boxes)
        image, boxes = resize(image, boxes, self.dim)
        return (image - 117.0) / 128.0, boxes


class HarbourFaces(Dataset):
    def __init__(self, n, preproc):
        self.photos = [make_photo(i) for i in range(n)]
        self.preproc = preproc

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, index):
        return self.preproc(*self.photos[index])


def collate(batch):
    """Pictures, and a map of targets: is there a face's centre in the cell, and its box."""
    size = cfg["image_dim"] // cfg["stride"]
    face, loc = torch.zeros(len(batch), size, size), torch.zeros(len(batch), 4, size, size)
    for i, (_, boxes) in enumerate(batch):
        cells = ((boxes[:, :2] + boxes[:, 2:]) / 2 / cfg["stride"]).long().clamp(0, size - 1)
        face[i, cells[:, 1], cells[:, 0]] = 1
        loc[i, :, cells[:, 1], cells[:, 0]] = boxes.T / cfg["image_dim"]
    return torch.stack([image for image, _ in batch]), face, loc


class FaceNet(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [3, 16, 32, 48, 64]
        self.body = nn.Sequential(
            *[
                nn.Sequential(nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))
                for a, b in zip(widths, widths[1:])
            ]
        )
        self.conf = nn.Conv2d(64, 1, 3, padding=1)
        self.loc = nn.Conv2d(64, 4, 3, padding=1)

    def forward(self, x):
        x = self.body(x)
        return self.conf(x).squeeze(1), self.loc(x)


def multibox_loss(conf, loc, face, boxes):
    loss_c = F.binary_cross_entropy_with_logits(conf, face, pos_weight=torch.tensor(10.0))
    weight = face.unsqueeze(1)
    loss_l = (F.smooth_l1_loss(loc, boxes, reduction="none") * weight).sum() / weight.sum().clamp(min=1)
    return loss_c + cfg["loc_weight"] * loss_l


def train():
    random.seed(3)
    torch.manual_seed(3)
    dataset = HarbourFaces(cfg["num_images"], Preproc(cfg["image_dim"]))
    loader = DataLoader(dataset, cfg["batch_size"], shuffle=True, collate_fn=collate, drop_last=True)
    net = FaceNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=cfg["lr"], momentum=0.9, weight_decay=5e-4)
    net.train()
    for epoch in range(cfg["epochs"]):
        for images, face, boxes in loader:
            conf, loc = net(images)
            loss = multibox_loss(conf, loc, face, boxes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}/{cfg['epochs']} loss {loss.item():.4f}")


if __name__ == "__main__":
    train()
