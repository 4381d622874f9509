"""Next positions of migrating storks from their tracks so far: causal convolutions over tracks of unequal lengths."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


@dataclass
class Settings:
    birds: int = 4600
    shortest: int = 8
    longest: int = 30
    hidden: int = 32
    batch_size: int = 96
    epochs: int = 8
    lr: float = 2e-3
    seed: int = 41


class TrackDataset(Dataset):
    """Displacements per day, with what the bird knows of the wind and of the time of the year."""

    def __init__(self, settings: Settings, count: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(settings.shortest, settings.longest + 1, (count,), generator=generator)
        self.inputs: list[torch.Tensor] = []
        self.targets: list[torch.Tensor] = []
        for length in lengths.tolist():
            wind = torch.randn(length + 1, 2, generator=generator).cumsum(0) * 0.1
            heading = torch.randn(2, generator=generator)
            drift = 0.5 * heading / heading.norm()
            steps = drift + 0.4 * wind + 0.1 * torch.randn(length + 1, 2, generator=generator)
            day = torch.linspace(0, 1, length + 1)[:, None]
            self.inputs.append(torch.cat([steps, wind, day], dim=1)[:-1])
            self.targets.append(steps[1:])

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[index], self.targets[index]


def collate(tracks: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    inputs, targets = zip(*tracks)
    lengths = torch.tensor([len(track) for track in inputs])
    return pad_sequence(inputs, batch_first=True), pad_sequence(targets, batch_first=True), lengths


class TrackModel(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.encode = nn.Linear(5, hidden)
        self.convs = nn.ModuleList(nn.Conv1d(hidden, hidden, 3, dilation=dilation) for dilation in (1, 2, 4))
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        states = self.encode(inputs).transpose(1, 2)
        for conv in self.convs:
            past = F.pad(states, (2 * conv.dilation[0], 0))  # no day sees those after it
            states = states + F.relu(conv(past))
        return self.head(states.transpose(1, 2))


def track_loss(predicted: torch.Tensor, targets: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Each track counts the same, however many days it has; what was padded does not count."""
    total = predicted.new_zeros(())
    for i in range(len(lengths)):
        total = total + F.smooth_l1_loss(predicted[i, : lengths[i]], targets[i, : lengths[i]])
    return total / len(lengths)


class Experiment:
    def __init__(self, settings: Settings):
        torch.manual_seed(settings.seed)
        self.settings = settings
        train_set = TrackDataset(settings, settings.birds, settings.seed)
        valid_set = TrackDataset(settings, 200, settings.seed + 1)
        self.train_loader = DataLoader(train_set, settings.batch_size, shuffle=True, drop_last=True, collate_fn=collate)
        self.valid_loader = DataLoader(valid_set, 100, collate_fn=collate)
        self.model = TrackModel(settings.hidden)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.lr)

    def step(self, batch) -> torch.Tensor:
        inputs, targets, lengths = batch
        self.optimizer.zero_grad()
        loss = track_loss(self.model(inputs), targets, lengths)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def validate(self) -> float:
        self.model.eval()
        losses = [track_loss(self.model(inputs), targets, lengths) for inputs, targets, lengths in self.valid_loader]
        self.model.train()
        return torch.stack(losses).mean().item()

    def run(self) -> None:
        for epoch in range(self.settings.epochs):
            losses = [self.step(batch) for batch in self.train_loader]
            print(f"epoch {epoch}: train {torch.stack(losses).mean():.4f}, valid {self.validate():.4f}")


if __name__ == "__main__":
    Experiment(Settings()).run()
