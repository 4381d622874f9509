"""What kind of vessel sails a fjord, told from its positions: a GRU over windows of tracks."""

import argparse

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

KINDS = ("ferry", "trawler", "tanker", "yacht", "pilot")
CRUISE = {"ferry": 14.0, "trawler": 6.0, "tanker": 10.0, "yacht": 8.0, "pilot": 20.0}
WANDER = {"ferry": 0.02, "trawler": 0.35, "tanker": 0.03, "yacht": 0.2, "pilot": 0.1}
COLUMNS = ["east", "north", "speed", "heading_sin", "heading_cos", "gap"]


def simulate_positions(vessels: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """All reports of all vessels in the order of time, as a receiver on the shore would store them."""
    rng = np.random.default_rng(seed)
    pieces, kinds = [], {}
    for number in range(vessels):
        mmsi = 257_000_000 + 13 * number
        kind = KINDS[number % len(KINDS)]
        reports = int(rng.integers(110, 170))
        gap = rng.gamma(2.0, 0.5, reports)
        heading = rng.uniform(0, 2 * np.pi) + np.cumsum(rng.normal(0, WANDER[kind], reports))
        speed = np.abs(CRUISE[kind] + np.cumsum(rng.normal(0, 0.4, reports)))
        pieces.append(
            pd.DataFrame(
                {
                    "mmsi": mmsi,
                    "time": np.cumsum(gap) + rng.uniform(0, 600),
                    "east": np.cumsum(speed * np.sin(heading) * gap) / 500,
                    "north": np.cumsum(speed * np.cos(heading) * gap) / 500,
                    "speed": speed / 10,
                    "heading_sin": np.sin(heading),
                    "heading_cos": np.cos(heading),
                    "gap": gap,
                }
            )
        )
        kinds[mmsi] = KINDS.index(kind)
    frame = pd.concat(pieces).sort_values("time", ignore_index=True)
    return frame, pd.Series(kinds, name="kind")


class TrackWindows(Dataset):
    def __init__(self, frame: pd.DataFrame, kinds: pd.Series, window: int):
        self.tracks = dict(iter(frame.groupby("mmsi")))
        self.kinds = kinds
        self.window = window
        self.vessels = kinds.index.to_numpy()

    def __len__(self) -> int:
        return len(self.vessels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        mmsi = self.vessels[index]
        track = self.tracks[mmsi]
        start = int(torch.randint(len(track) - self.window + 1, ()))
        values = track[COLUMNS].to_numpy(dtype=np.float32, copy=True)[start : start + self.window]
        values[:, :2] -= values[0, :2].copy()
        return torch.from_numpy(values), int(self.kinds[mmsi])


class TrackClassifier(nn.Module):
    def __init__(self, features: int, hidden: int, kinds: int):
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(features, hidden), nn.GELU())
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.head = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, kinds))

    def forward(self, tracks: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(self.lift(tracks))
        return self.head(states.mean(1))


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = seen = 0
    for tracks, kinds in loader:
        right += (model(tracks).argmax(-1) == kinds).sum().item()
        seen += len(kinds)
    return right / seen


def train(args: argparse.Namespace) -> None:
    frame, kinds = simulate_positions(args.vessels, args.seed)
    dataset = TrackWindows(frame, kinds, args.window)
    held_out = len(dataset) // 8
    train_set, test_set = random_split(dataset, [len(dataset) - held_out, held_out])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=64)

    model = TrackClassifier(len(COLUMNS), args.hidden, len(KINDS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, args.epochs * len(train_loader))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    for epoch in range(1, args.epochs + 1):
        model.train()
        running = torch.zeros(())
        for tracks, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(tracks), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            scheduler.step()
            running += loss.detach()
        print(f"epoch {epoch}: loss {running.item() / len(train_loader):.3f}")
    print(f"held-out accuracy {accuracy(model, test_loader):.3f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vessels", type=int, default=720)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=19)
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse_args()
    torch.manual_seed(arguments.seed)
    train(arguments)
