"""A surrogate of burner fields: convolutional encoder and decoder, written for two cores."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class BurnerFields(Dataset):
    """Inflow parameters and the temperature field that follows; batches are fetched by a list of indices."""

    def __init__(self, count, seed, side=32):
        generator = torch.Generator().manual_seed(seed)
        self.inflow = torch.rand(count, 4, generator=generator)
        rows = torch.linspace(0, 1, side).view(1, side, 1)
        columns = torch.linspace(-1, 1, side).view(1, 1, side)
        speed, heat, swirl, ratio = (column.view(-1, 1, 1) for column in self.inflow.unbind(1))
        spread = 0.1 + 0.3 * swirl * rows
        flame = heat * torch.exp(-((columns / spread) ** 2)) * torch.exp(-rows / (0.2 + speed))
        self.fields = (flame * (1 + 0.2 * torch.sin(12 * rows * ratio)))[:, None]

    def __len__(self):
        return len(self.inflow)

    def __getitem__(self, rows):
        return self.inflow[rows], self.fields[rows]


class Decoder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.seed = nn.Sequential(nn.Linear(4, 128), nn.SiLU(), nn.Linear(128, width * 16))
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(8, o), nn.SiLU())
            for i, o in ((width, width), (width, width // 2), (width // 2, width // 4))
        )
        self.out = nn.Conv2d(width // 4, 1, 3, padding=1)

    def forward(self, inflow):
        h = self.seed(inflow).unflatten(1, (-1, 4, 4))
        for stage in self.stages:
            h = stage(F.interpolate(h, scale_factor=2.0, mode="nearest"))
        return self.out(h)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(7)
    dataset = BurnerFields(2048, seed=7)
    sampler = BatchSampler(RandomSampler(dataset), args.batch_size, drop_last=True)
    loader = DataLoader(dataset, batch_size=None, sampler=sampler)
    model = Decoder().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, args.epochs * len(sampler))
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for inflow, fields in loader:
            loss = F.mse_loss(model(inflow), fields)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach()
        print(f"epoch {epoch}: mse {total.item() / len(sampler):.5f}")


if __name__ == "__main__":
    main()
