"""Patches of 3D volumes; a small volumetric network; trainer with validation every n iterations."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

CONFIG = {
    "loaders": {"patch": (8, 24, 24), "stride": (8, 12, 12), "batch": 4},
    "trainer": {"max_iters": 150, "validate_after": 75, "log_after": 30},
    "model": {"f_maps": 4},
    "optimizer": {"learning_rate": 2e-3, "weight_decay": 1e-5},
}


def write_volumes(root, count, shape):
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.arange(s) for s in shape], indexing="ij"), -1)
    for i in range(count):
        centres = rng.uniform(0, 1, (6, 3)) * shape
        distance = np.min([np.linalg.norm(grid - c, axis=-1) for c in centres], axis=0)
        label = (distance < 7).astype(np.uint8)
        raw = (label + 0.4 * rng.standard_normal(shape)).astype(np.float32)
        np.savez_compressed(root / f"volume{i}.npz", raw=raw, label=label)


class SliceBuilder:
    def __init__(self, shape, patch, stride):
        starts = [range(0, n - p + 1, s) for n, p, s in zip(shape, patch, stride)]
        corners = [(z, y, x) for z in starts[0] for y in starts[1] for x in starts[2]]
        self.slices = [tuple(slice(c, c + p) for c, p in zip(corner, patch)) for corner in corners]


class NpzDataset(Dataset):
    def __init__(self, path, patch, stride):
        self.path = path
        with np.load(path) as file:
            self.slices = SliceBuilder(file["raw"].shape, patch, stride).slices

    def __len__(self):
        return len(self.slices)

    def __getitem__(self, idx):
        with np.load(self.path) as file:
            raw, label = file["raw"][self.slices[idx]], file["label"][self.slices[idx]]
        raw = (raw - raw.mean()) / raw.std()
        return torch.from_numpy(raw)[None], torch.from_numpy(label).float()[None]


def conv(a, b):
    return nn.Sequential(nn.GroupNorm(1 if a < 4 else 4, a), nn.Conv3d(a, b, 3, padding=1), nn.ReLU())


class UNet3D(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.enc1, self.enc2 = conv(1, f), conv(f, 2 * f)
        self.dec1, self.final = conv(3 * f, f), nn.Conv3d(f, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(nn.functional.max_pool3d(a, 2))
        return self.final(self.dec1(torch.cat([a, nn.functional.interpolate(b, scale_factor=2)], 1)))


class UNetTrainer:
    def __init__(self, model, optimizer, loaders, folder, cfg):
        self.model, self.optimizer, self.loaders, self.folder, self.cfg = model, optimizer, loaders, folder, cfg
        self.criterion, self.iteration = nn.BCEWithLogitsLoss(), 0

    def validate(self):
        self.model.eval()
        with torch.no_grad():
            losses = [self.criterion(self.model(x), y).item() for x, y in self.loaders["val"]]
        self.model.train()
        return sum(losses) / len(losses)

    def fit(self):
        while True:
            for x, y in self.loaders["train"]:
                loss = self.criterion(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.iteration += 1
                if self.iteration % self.cfg["log_after"] == 0:
                    print(f"Training iteration {self.iteration}: loss {loss.item():.4f}")
                if self.iteration % self.cfg["validate_after"] == 0:
                    print(f"Validation loss {self.validate():.4f}")
                    torch.save(self.model.state_dict(), self.folder / "last_checkpoint.pytorch")
                if self.iteration >= self.cfg["max_iters"]:
                    return


def main():
    torch.manual_seed(0)
    lc = CONFIG["loaders"]
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        write_volumes(root, 5, (16, 128, 128))
        sets = [NpzDataset(path, lc["patch"], lc["stride"]) for path in sorted(root.glob("*.npz"))]
        loaders = {
            "train": DataLoader(ConcatDataset(sets[:4]), lc["batch"], shuffle=True),
            "val": DataLoader(sets[4], lc["batch"]),
        }
        model = UNet3D(**{"f": CONFIG["model"]["f_maps"]})
        oc = CONFIG["optimizer"]
        optimizer = torch.optim.Adam(model.parameters(), lr=oc["learning_rate"], weight_decay=oc["weight_decay"])
        UNetTrainer(model, optimizer, loaders, root, CONFIG["trainer"]).fit()


if __name__ == "__main__":
    main()
