"""Box regression for numbered pictures with XML annotations; a registry, pipelines and a runner with hooks."""

import itertools
import os.path as osp
import tempfile
import xml.etree.ElementTree as ET
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

REGISTRY = {}


def register(cls):
    REGISTRY[cls.__name__] = cls
    return cls


def build(cfg, **extra):
    cfg = dict(cfg)
    return REGISTRY[cfg.pop("type")](**cfg, **extra)


def write_dataset(root, count, size, points):
    rng = np.random.default_rng(0)
    images = []
    for i in range(count):
        x, y, w, h = rng.integers(2, 20), rng.integers(2, 20), rng.integers(8, 20), rng.integers(8, 20)
        image = rng.normal(0, 0.3, (3, size, size)).astype(np.float32)
        image[:, y : y + h, x : x + w] += 1
        images.append(image)
        tree = ET.Element("annotation")
        box = ET.SubElement(ET.SubElement(tree, "object"), "bndbox")
        for tag, value in zip(("xmin", "ymin", "xmax", "ymax"), (x, y, x + w, y + h)):
            ET.SubElement(box, tag).text = str(value)
        outline = ET.SubElement(tree, "polygon")
        for k in range(points):
            angle = 2 * np.pi * k / points
            point = ET.SubElement(outline, "pt")
            ET.SubElement(point, "x").text = f"{x + w / 2 * (1 + np.cos(angle)):.2f}"
            ET.SubElement(point, "y").text = f"{y + h / 2 * (1 + np.sin(angle)):.2f}"
        ET.ElementTree(tree).write(osp.join(root, f"{i:05d}.xml"))
    np.save(osp.join(root, "images.npy"), np.stack(images))


@register
class XMLDataset(Dataset):
    def __init__(self, root, flip_ratio):
        self.root, self.flip_ratio = root, flip_ratio
        self.images = np.load(osp.join(root, "images.npy"))

    def __len__(self):
        return len(self.images)

    def load_annotation(self, idx):
        root = ET.parse(osp.join(self.root, f"{idx:05d}.xml")).getroot()
        box = [float(root.find(f"object/bndbox/{tag}").text) for tag in ("xmin", "ymin", "xmax", "ymax")]
        polygon = [[float(p.find("x").text), float(p.find("y").text)] for p in root.findall("polygon/pt")]
        return {"bbox": np.float32(box), "centre": np.mean(polygon, 0, dtype=np.float32)}

    def get_ann_info(self, idx):
        return self.load_annotation(idx)

    def __getitem__(self, idx):
        image, ann = self.images[idx], self.get_ann_info(idx)
        box, centre = ann["bbox"] / image.shape[-1], ann["centre"] / image.shape[-1]
        if torch.rand(()) < self.flip_ratio:
            image = np.ascontiguousarray(image[:, :, ::-1])
            box, centre = box[[2, 1, 0, 3]] * [-1, 1, -1, 1] + [1, 0, 1, 0], centre * [-1, 1] + [1, 0]
        return torch.from_numpy(image), torch.from_numpy(np.float32([*box, *centre]))


@register
class BoxNet(nn.Module):
    def __init__(self, stem, outputs):
        super().__init__()
        chans = [3, stem, 2 * stem, 4 * stem]
        layers = []
        for a, b in itertools.pairwise(chans):
            layers += [nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        self.net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(chans[-1] * 25, outputs))

    def forward(self, x):
        return self.net(x)


class LoggerHook:
    def __init__(self, interval):
        self.interval = interval

    def after_train_iter(self, runner):
        if runner.iter % self.interval == 0:
            print(f"Epoch [{runner.epoch}][{runner.iter}] " + ", ".join(f"{k}: {v:.4f}" for k, v in runner.log.items()))


class CheckpointHook:
    def __init__(self, folder):
        self.folder = folder

    def after_train_epoch(self, runner):
        torch.save(runner.model.state_dict(), osp.join(self.folder, "latest.pth"))


class Runner:
    def __init__(self, model, optimizer, hooks):
        self.model, self.optimizer, self.hooks = model, optimizer, hooks
        self.epoch = self.iter = 0
        self.log = OrderedDict()

    def call_hook(self, name):
        for hook in self.hooks:
            if hasattr(hook, name):
                getattr(hook, name)(self)

    def run(self, loader, epochs):
        for self.epoch in range(1, epochs + 1):
            self.model.train()
            for image, target in loader:
                loss = nn.functional.smooth_l1_loss(self.model(image), target)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.iter += 1
                self.log["loss"] = loss.item()
                self.call_hook("after_train_iter")
            self.call_hook("after_train_epoch")


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        write_dataset(root, 480, 40, points=40)
        dataset = build({"type": "XMLDataset", "flip_ratio": 0.5}, root=root)
        loader = DataLoader(dataset, 16, shuffle=True)
        model = build({"type": "BoxNet", "stem": 16, "outputs": 6})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
        Runner(model, optimizer, [LoggerHook(40), CheckpointHook(root)]).run(loader, epochs=6)


if __name__ == "__main__":
    main()
