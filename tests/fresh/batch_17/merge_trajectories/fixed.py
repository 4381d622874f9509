"""Where do cars drive as lanes merge? Attention over the agents of a scene, each scene preprocessed to a file."""

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAST, FUTURE, LANES = 20, 12, 10


def preprocess(folder, scenes, seed):
    """Writes a file for each scene: agents with their past and future, lanes with their vectors."""
    gen = torch.Generator().manual_seed(seed)
    for i in range(scenes):
        agents = int(torch.randint(3, 12, (1,), generator=gen))
        speed = 0.5 + torch.rand(agents, 1, 1, generator=gen)
        turn = 0.05 * torch.randn(agents, 1, 1, generator=gen)
        time = torch.arange(PAST + FUTURE).view(1, -1, 1) / 10
        path = torch.cat([speed * time, turn * time**2], 2) + 0.02 * torch.randn(
            agents, time.shape[1], 2, generator=gen
        )
        path = path + 4 * torch.randn(agents, 1, 2, generator=gen)
        now = path[:, PAST - 1 : PAST]
        scene = {
            "past": (path - now)[:, :PAST],
            "future": (path - now)[:, PAST:],
            "place": now[:, 0],
            "lanes": torch.randn(LANES, 4, generator=gen),
            "city": i % 3,
        }
        torch.save(scene, Path(folder) / f"scene_{i:05d}.pt")


class Scenes(Dataset):
    def __init__(self, folder):
        self.scenes = [torch.load(file) for file in sorted(Path(folder).glob("scene_*.pt"))]

    def __len__(self):
        return len(self.scenes)

    def __getitem__(self, index):
        return self.scenes[index]


def collate(scenes):
    counts = torch.tensor([len(scene["past"]) for scene in scenes])
    batch = {
        key: nn.utils.rnn.pad_sequence([scene[key] for scene in scenes], batch_first=True)
        for key in ("past", "future", "place", "lanes")
    }
    batch["mask"] = torch.arange(counts.max()) < counts[:, None]
    return batch


class SceneAttention(nn.Module):
    def __init__(self, width=96, layers=2):
        super().__init__()
        self.motion = nn.Sequential(nn.Linear(2 * PAST + 2, width), nn.ReLU(), nn.Linear(width, width))
        self.lane = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.mixer = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.decode = nn.Linear(width, 2 * FUTURE)

    def forward(self, past, place, lanes, mask):
        agents = self.motion(torch.cat([past.flatten(2), place], 2))
        tokens = torch.cat([agents, self.lane(lanes)], 1)
        hidden = torch.cat([~mask, mask.new_zeros(lanes.shape[:2])], 1)
        mixed = self.mixer(tokens, src_key_padding_mask=hidden)[:, : past.shape[1]]
        return self.decode(mixed).view(*mask.shape, FUTURE, 2)


def train(folder, epochs=6, batch_size=32):
    loader = DataLoader(Scenes(folder), batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    model = SceneAttention()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for batch in loader:
            mask = batch["mask"]
            guess = model(batch["past"], batch["place"], batch["lanes"], mask)
            loss = nn.functional.smooth_l1_loss(guess[mask], batch["future"][mask])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        preprocess(folder, scenes=1600, seed=15)
        train(folder)


if __name__ == "__main__":
    main()
