"""Semi-supervised learning of sounds: a few labelled clips, many without labels, whose views must agree."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
CLASSES, SAMPLES = 6, 256


class Clips(Dataset):
    """Generated when asked for: number `index` is always the same clip."""

    def __init__(self, count):
        self.count, self.time = count, torch.linspace(0, 1, SAMPLES)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        label = index % CLASSES
        pitch = 5 + 4 * label + (index % 97) / 97
        return (6.283 * pitch * self.time + index % 11).sin()[None], label


def network():
    return nn.Sequential(
        nn.Conv1d(1, 24, 15, 4, 7),
        nn.ReLU(),
        nn.Conv1d(24, 48, 9, 4, 4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48 * SAMPLES // 16, CLASSES),
    )


def noisy(clips):
    return clips + 0.3 * torch.randn_like(clips)


labelled = DataLoader(Clips(1600), batch_size=16, shuffle=True)
unlabelled = DataLoader(Clips(300_000), batch_size=32, shuffle=True)
model = network().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
endless = iter(unlabelled)
for epoch in range(2):
    for clips, labels in labelled:
        more, _ = next(endless)
        clips, labels, more = clips.to(device), labels.to(device), more.to(device)
        scores = model(torch.cat([noisy(clips), noisy(more), noisy(more)]))
        known, one, other = scores.split([len(clips), len(more), len(more)])
        agreement = nn.functional.mse_loss(one.softmax(1), other.softmax(1))
        loss = nn.functional.cross_entropy(known, labels) + agreement
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
