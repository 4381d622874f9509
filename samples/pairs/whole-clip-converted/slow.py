"""Gestures in short videos: eight frames of each clip, a corner of each frame, convolutions over space and time."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


def film(count, frames=48, side=56):
    """Bytes as from a camera, (count, time, height, width, colour): a square that moves one of four ways."""
    ways = torch.tensor([[0, 1], [1, 0], [0, -1], [-1, 0]])
    labels = torch.randint(0, 4, (count,))
    clips = torch.randint(0, 60, (count, frames, side, side, 3), dtype=torch.uint8)
    for clip, label in zip(clips, labels):
        row, column = torch.randint(18, 30, (2,))
        for t, frame in enumerate(clip):
            y, x = (torch.stack([row, column]) + (t - frames // 2) * ways[label] // 3).tolist()
            frame[y : y + 8, x : x + 8] += 150
    return clips, labels


class Gestures(Dataset):
    mean = torch.tensor([0.3, 0.3, 0.3])
    spread = torch.tensor([0.2, 0.2, 0.2])

    def __init__(self, clips, labels, frames=8, crop=48):
        self.clips, self.labels, self.frames, self.crop = clips, labels, frames, crop

    def __len__(self):
        return len(self.clips)

    def normalised(self, clip):
        """Bytes to floats, colours first: (colour, time, height, width)."""
        return ((clip.float() / 255 - self.mean) / self.spread).permute(3, 0, 1, 2)

    def __getitem__(self, index):
        clip = self.clips[index]
        first, (top, left) = int(torch.randint(0, 6, ())), torch.randint(0, 8, (2,)).tolist()
        clip = self.normalised(clip)
        clip = clip[:, first::6][:, : self.frames, top : top + self.crop, left : left + self.crop]
        return clip, self.labels[index]


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.space = nn.Conv3d(3, width, (1, 4, 4), stride=(1, 4, 4))
        self.time = nn.Conv3d(width, 2 * width, (3, 3, 3), stride=(2, 2, 2), padding=1)
        self.out = nn.Linear(2 * width, 4)

    def forward(self, clips):
        seen = self.time(self.space(clips).relu()).relu()
        return self.out(seen.mean((2, 3, 4)))


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = DataLoader(Gestures(*film(240)), batch_size=8, shuffle=True, drop_last=True)
    model = Net().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    for epoch in range(6):
        for clips, labels in loader:
            loss = nn.functional.cross_entropy(model(clips.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")
