"""Body pose and shape parameters from cropped pictures, in short epochs over a mixture of small data sets."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

CONFIG = {
    "data": {"sizes": [120, 80, 56], "side": 48, "joints": 24},
    "loader": {"batch_size": 32, "num_workers": 2, "shuffle": True},
    "optimizer": {"lr": 3e-4},
    "epochs": 34,
}


class Crops(Dataset):
    """Pictures and their pose; a crop is jittered and normalised when it is read."""

    def __init__(self, count, side, joints, seed):
        rng = np.random.default_rng(seed)
        self.pictures = rng.integers(0, 255, (count, side + 8, side + 8, 3), dtype=np.uint8)
        self.pose = rng.standard_normal((count, joints * 3)).astype(np.float32)
        self.side = side

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        top, left = torch.randint(0, 9, (2,)).tolist()
        crop = self.pictures[index, top : top + self.side, left : left + self.side]
        crop = (crop.astype(np.float32) / 255.0 - 0.45) / 0.225
        return torch.from_numpy(crop.transpose(2, 0, 1).copy()), torch.from_numpy(self.pose[index])


class Regressor(nn.Module):
    def __init__(self, joints):
        super().__init__()
        blocks, width = [], 3
        for out in (16, 32, 64):
            blocks += [nn.Conv2d(width, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
            width = out
        self.backbone = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(64 + joints * 3, 128), nn.ReLU(), nn.Linear(128, joints * 3))
        self.register_buffer("mean_pose", torch.zeros(joints * 3))

    def forward(self, pictures):
        features = self.backbone(pictures)
        pose = self.mean_pose.expand(len(pictures), -1)
        for _ in range(3):
            pose = pose + self.head(torch.cat([features, pose], dim=1))
        return pose


def main():
    torch.manual_seed(0)
    data = CONFIG["data"]
    parts = [Crops(n, data["side"], data["joints"], seed) for seed, n in enumerate(data["sizes"])]
    loader = DataLoader(ConcatDataset(parts), **CONFIG["loader"])
    model = Regressor(data["joints"])
    optimizer = torch.optim.Adam(model.parameters(), **CONFIG["optimizer"])
    for epoch in range(CONFIG["epochs"]):
        for pictures, pose in loader:
            loss = nn.functional.l1_loss(model(pictures), pose)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
