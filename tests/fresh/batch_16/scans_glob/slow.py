"""Binary segmentation of scans from two folders, pictures and masks; names are matched by their stem."""

import logging
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset, random_split

logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")


def write_scans(root, count, size=48, seed=0):
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij"))
    for folder in ("imgs", "masks"):
        (root / folder).mkdir()
    for i in range(count):
        centre, radius = rng.uniform(12, size - 12, (2, 1, 1)), rng.uniform(5, 12)
        mask = np.hypot(*(grid - centre)) < radius
        image = np.clip(90 + 70 * mask + 40 * rng.standard_normal((size, size)), 0, 255)
        name = f"{rng.integers(10**9):09d}_{i:05d}"
        Image.fromarray(image.astype(np.uint8)).save(root / "imgs" / f"{name}.png", compress_level=1)
        Image.fromarray(mask.astype(np.uint8)).save(root / "masks" / f"{name}_mask.png", compress_level=1)


class ScanDataset(Dataset):
    def __init__(self, images_dir, mask_dir, mask_suffix="_mask"):
        self.images_dir, self.mask_dir, self.mask_suffix = Path(images_dir), Path(mask_dir), mask_suffix
        self.ids = sorted(file.stem for file in self.images_dir.iterdir())
        logging.info(f"Creating dataset with {len(self.ids)} examples")

    def __len__(self):
        return len(self.ids)

    @staticmethod
    def preprocess(pil_img, is_mask):
        array = np.asarray(pil_img)
        if is_mask:
            return array.astype(np.int64)
        return array[None].astype(np.float32) / 255.0

    def __getitem__(self, idx):
        name = self.ids[idx]
        mask_file = list(self.mask_dir.glob(name + self.mask_suffix + ".*"))
        img_file = list(self.images_dir.glob(name + ".*"))
        assert len(img_file) == 1, f"Either no image or multiple images found for the ID {name}: {img_file}"
        assert len(mask_file) == 1, f"Either no mask or multiple masks found for the ID {name}: {mask_file}"
        mask, img = Image.open(mask_file[0]), Image.open(img_file[0])
        assert img.size == mask.size
        return {
            "image": torch.from_numpy(self.preprocess(img, is_mask=False)),
            "mask": torch.from_numpy(self.preprocess(mask, is_mask=True)),
        }


class DoubleConv(nn.Sequential):
    def __init__(self, a, b):
        super().__init__(
            nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
            nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
        )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, n_classes=2, width=10):
        super().__init__()
        self.inc, self.down1, self.down2 = (
            DoubleConv(1, width),
            DoubleConv(width, 2 * width),
            DoubleConv(2 * width, 4 * width),
        )
        self.pool = nn.MaxPool2d(2)
        self.up1, self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.conv1, self.conv2 = DoubleConv(4 * width, 2 * width), DoubleConv(2 * width, width)
        self.outc = nn.Conv2d(width, n_classes, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(self.pool(x1))
        x3 = self.down2(self.pool(x2))
        x = self.conv1(torch.cat([x2, self.up1(x3)], 1))
        return self.outc(self.conv2(torch.cat([x1, self.up2(x)], 1)))


@torch.inference_mode()
def evaluate(net, loader):
    net.eval()
    inter = total = 0
    for batch in loader:
        found = net(batch["image"]).argmax(1)
        inter += (found * batch["mask"]).sum().item()
        total += (found.sum() + batch["mask"].sum()).item()
    net.train()
    return 2 * inter / max(total, 1)


def train_model(root, epochs=2, batch_size=10, lr=1e-3, val_percent=0.1):
    dataset = ScanDataset(root / "imgs", root / "masks")
    n_val = int(len(dataset) * val_percent)
    train_set, val_set = random_split(dataset, [len(dataset) - n_val, n_val], torch.Generator().manual_seed(0))
    train_loader = DataLoader(train_set, shuffle=True, batch_size=batch_size)
    val_loader = DataLoader(val_set, shuffle=False, drop_last=True, batch_size=batch_size)
    net = UNet()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=lr, weight_decay=1e-8, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(1, epochs + 1):
        epoch_loss = 0.0
        for batch in train_loader:
            loss = criterion(net(batch["image"]), batch["mask"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            epoch_loss += loss.item()
        logging.info(f"epoch {epoch} loss {epoch_loss / len(train_loader):.4f} dice {evaluate(net, val_loader):.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_scans(Path(folder), 900)
        train_model(Path(folder))
