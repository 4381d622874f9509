"""Where did the neutrino come from? Pulses of light sensors lie in a SQLite file and are read event by event."""

import sqlite3
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


def write_database(path, events, seed):
    """Each event is a track through the detector; sensors near it see light a little later."""
    g = torch.Generator().manual_seed(seed)
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE truth (event_no INTEGER PRIMARY KEY, x REAL, y REAL, z REAL)")
    db.execute("CREATE TABLE pulses (event_no INTEGER, x REAL, y REAL, z REAL, time REAL, charge REAL)")
    for event in range(events):
        direction = F.normalize(torch.randn(3, generator=g), dim=0)
        count = int(torch.randint(16, 49, (), generator=g))
        along = 2 * torch.rand(count, 1, generator=g) - 1
        places = along * direction + 0.15 * torch.randn(count, 3, generator=g)
        time = along + 0.05 * torch.randn(count, 1, generator=g)
        charge = torch.rand(count, 1, generator=g).neg().exp()
        rows = torch.cat([places, time, charge], dim=1).tolist()
        db.executemany("INSERT INTO pulses VALUES (?, ?, ?, ?, ?, ?)", [(event, *row) for row in rows])
        db.execute("INSERT INTO truth VALUES (?, ?, ?, ?)", (event, *direction.tolist()))
    db.execute("CREATE INDEX pulses_of_event ON pulses (event_no)")
    db.commit()
    db.close()


class SQLiteEvents(Dataset):
    def __init__(self, path, events):
        self.events = events
        self.db = sqlite3.connect(path)

    def __len__(self):
        return len(self.events)

    def __getitem__(self, index):
        key = (self.events[index],)
        pulses = self.db.execute("SELECT x, y, z, time, charge FROM pulses WHERE event_no = ?", key).fetchall()
        direction = self.db.execute("SELECT x, y, z FROM truth WHERE event_no = ?", key).fetchone()
        return torch.tensor(pulses), torch.tensor(direction)


def collate(items):
    pulses, directions = zip(*items)
    lengths = torch.tensor([len(rows) for rows in pulses])
    padded = nn.utils.rnn.pad_sequence(pulses, batch_first=True)
    return padded, torch.arange(padded.size(1)) < lengths[:, None], torch.stack(directions)


class EdgeConv(nn.Module):
    """Messages from the nearest pulses, in the space of the current features."""

    def __init__(self, inside, outside, neighbours=8):
        super().__init__()
        self.neighbours = neighbours
        self.mlp = nn.Sequential(nn.Linear(2 * inside, outside), nn.LeakyReLU(), nn.Linear(outside, outside))

    def forward(self, x, mask):
        with torch.no_grad():
            far = torch.cdist(x, x).masked_fill(~mask[:, None], float("inf"))
            near = far.topk(self.neighbours, largest=False).indices
        batch = torch.arange(len(x))[:, None, None]
        centre = x.unsqueeze(2).expand(-1, -1, self.neighbours, -1)
        return self.mlp(torch.cat([centre, x[batch, near] - centre], dim=-1)).amax(2)


class DirectionNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.first, self.second = EdgeConv(5, width), EdgeConv(width, width)
        self.head = nn.Sequential(nn.Linear(4 * width, width), nn.LeakyReLU(), nn.Linear(width, 3))

    def forward(self, pulses, mask):
        one = self.first(pulses, mask)
        x = torch.cat([one, self.second(one, mask)], dim=-1)
        weight = mask.unsqueeze(2)
        mean = (x * weight).sum(1) / weight.sum(1)
        most = x.masked_fill(~weight, -1e4).amax(1)
        return F.normalize(self.head(torch.cat([mean, most], dim=1)), dim=1)


def main():
    torch.manual_seed(2)
    events, epochs = 960, 5
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.db"
        write_database(path, events, seed=2)
        data = SQLiteEvents(path, list(range(events)))
        loader = DataLoader(data, batch_size=32, shuffle=True, collate_fn=collate, drop_last=True)
        model = DirectionNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
        for epoch in range(epochs):
            total = torch.zeros(())
            for pulses, mask, directions in loader:
                loss = 1 - (model(pulses, mask) * directions).sum(1).mean()
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += loss.detach()
            print(f"epoch {epoch} loss {total.item() / len(loader):.4f}")
        data.db.close()


if __name__ == "__main__":
    main()
