"""Particle jets: each event has hits in three detectors, read by two workers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
EVENTS, TRACKS, CELLS = 3072, 20, 64


class Events(Dataset):
    def __init__(self):
        self.flavour = torch.randint(0, 5, (EVENTS,))
        self.tracks = torch.randn(EVENTS, TRACKS, 6) + self.flavour[:, None, None] / 5
        self.calorimeter = torch.rand(EVENTS, CELLS).pow(3)
        self.muons = torch.randn(EVENTS, 4, 3)

    def __len__(self):
        return EVENTS

    def __getitem__(self, index):
        return {
            "tracks": self.tracks[index],
            "calorimeter": self.calorimeter[index].log1p(),
            "muons": self.muons[index],
            "flavour": self.flavour[index],
        }


def together(events):
    """One dictionary of batches from a list of events."""
    return {key: torch.stack([event[key] for event in events]) for key in events[0]}


class Tagger(nn.Module):
    """A set network over the tracks, joined with the other detectors."""

    def __init__(self, width=320):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.other = nn.Sequential(nn.Linear(CELLS + 12, width), nn.ReLU())
        self.joined = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 5))

    def forward(self, event):
        other = torch.cat([event["calorimeter"], event["muons"].flatten(1)], 1)
        return self.joined(torch.cat([self.each(event["tracks"]).sum(1) / TRACKS, self.other(other)], 1))


def main():
    loader = DataLoader(Events(), 64, shuffle=True, num_workers=2, persistent_workers=True, collate_fn=list)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(3):
        for events in loader:
            batch = together(events)
            loss = nn.functional.cross_entropy(model(batch), batch["flavour"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


main()
