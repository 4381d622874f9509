"""Object centres in indoor scans by Hough voting (points vote for the centre of the object that they lie on)."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    rooms: int = 64
    objects: int = 9
    raw_points: int = 3000
    points: int = 1024
    batch_size: int = 8
    epochs: int = 12
    lr: float = 1e-3
    seed: int = 11


def make_room(rng, config):
    """Boxes standing on a floor, sampled on their surfaces, with the instance each point belongs to."""
    centres = rng.uniform(0.5, 5.5, (config.objects, 3)) * [1, 1, 0.1]
    sizes = rng.uniform(0.3, 1.1, (config.objects, 3))
    owner = rng.integers(-1, config.objects, config.raw_points)
    offsets = rng.uniform(-0.5, 0.5, (config.raw_points, 3))
    axis = rng.integers(0, 3, config.raw_points)
    offsets[np.arange(config.raw_points), axis] = np.sign(offsets[np.arange(config.raw_points), axis]) * 0.5
    points = centres[owner] + offsets * sizes[owner]
    floor = owner < 0
    points[floor] = rng.uniform(0, 6, (floor.sum(), 3)) * [1, 1, 0.01]
    return points.astype(np.float32), owner, sizes.astype(np.float32)


class RoomDataset(Dataset):
    def __init__(self, config):
        rng = np.random.default_rng(config.seed)
        self.config = config
        self.rooms = [make_room(rng, config) for _ in range(config.rooms)]
        self.cache = {}

    def __len__(self):
        return len(self.rooms)

    def votes(self, points, owner):
        """Per point: the vector to the middle of the box around its instance, and whether there is one."""
        vectors = np.zeros_like(points)
        valid = np.zeros(len(points), dtype=np.float32)
        for instance in np.unique(owner):
            if instance < 0:
                continue
            inside = np.where(owner == instance)[0]
            middle = 0.5 * (points[inside].min(0) + points[inside].max(0))
            vectors[inside] = middle - points[inside]
            valid[inside] = 1
        return vectors, valid

    def height(self, points):
        """Height above the floor, which is estimated from the lowest points around each place of a grid."""
        cells = np.floor(points[:, :2] / 1.0).astype(int)
        floor = np.zeros(len(points), dtype=np.float32)
        for cell in np.unique(cells, axis=0):
            inside = (cells == cell).all(1)
            floor[inside] = np.percentile(points[inside, 2], 1)
        return points[:, 2] - floor

    def prepare(self, index):
        points, owner, _ = self.rooms[index]
        vectors, valid = self.votes(points, owner)
        cloud = np.concatenate([points, self.height(points)[:, None]], axis=1)
        return cloud, vectors, valid

    def __getitem__(self, index):
        if index not in self.cache:
            self.cache[index] = self.prepare(index)
        cloud, vectors, valid = self.cache[index]
        keep = np.random.choice(len(cloud), self.config.points, replace=False)
        cloud, vectors, valid = cloud[keep], vectors[keep], valid[keep]
        angle = np.random.uniform(-np.pi / 6, np.pi / 6)
        turn = np.array(
            [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]], dtype=np.float32
        )
        cloud = np.concatenate([cloud[:, :3] @ turn.T, cloud[:, 3:]], axis=1)
        return torch.from_numpy(cloud), torch.from_numpy(vectors @ turn.T), torch.from_numpy(valid)


class VoteNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.local = nn.Sequential(
            nn.Conv1d(4, width, 1),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 1),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        self.wide = nn.Sequential(nn.Conv1d(width, 2 * width, 1), nn.BatchNorm1d(2 * width), nn.ReLU())
        self.head = nn.Sequential(nn.Conv1d(3 * width, width, 1), nn.ReLU(), nn.Conv1d(width, 4, 1))

    def forward(self, cloud):
        local = self.local(cloud.transpose(1, 2))
        scene = self.wide(local).amax(2, keepdim=True).expand(-1, -1, local.size(2))
        out = self.head(torch.cat([local, scene], 1)).transpose(1, 2)
        return out[..., :3], out[..., 3]


def vote_loss(vectors, logit, target, valid):
    distance = F.smooth_l1_loss(vectors, target, reduction="none").sum(-1)
    regression = (distance * valid).sum() / valid.sum().clamp_min(1)
    return regression + 0.5 * F.binary_cross_entropy_with_logits(logit, valid)


def main():
    config = Config()
    torch.manual_seed(config.seed)
    np.random.seed(config.seed)
    data = RoomDataset(config)
    loader = DataLoader(data, batch_size=config.batch_size, shuffle=True, drop_last=True)
    model = VoteNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.epochs)
    for epoch in range(config.epochs):
        total = torch.zeros(())
        for cloud, target, valid in loader:
            vectors, logit = model(cloud)
            loss = vote_loss(vectors, logit, target, valid)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        schedule.step()
        print(f"epoch {epoch} loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()
