"""Singing voice conversion: content units of a phrase become a mel spectrogram, on two processes."""

import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Phrases(Dataset):
    def __init__(self, count, frames, seed):
        gen = torch.Generator().manual_seed(seed)
        self.units = torch.randn(count, 64, frames, generator=gen)
        self.f0 = torch.rand(count, 1, frames, generator=gen)
        self.mel = 0.3 * torch.randn(count, 40, frames, generator=gen) + self.f0

    def __len__(self):
        return len(self.units)

    def __getitem__(self, index):
        return self.units[index], self.f0[index], self.mel[index]


class Synthesizer(nn.Module):
    def __init__(self, hidden=96, layers=4):
        super().__init__()
        self.pre = nn.Conv1d(65, hidden, 1)
        self.dilated = nn.ModuleList(
            nn.Conv1d(hidden, 2 * hidden, 5, padding=2 * 2**i, dilation=2**i) for i in range(layers)
        )
        self.mix = nn.ModuleList(nn.Conv1d(hidden, hidden, 1) for _ in range(layers))
        self.out = nn.Conv1d(hidden, 40, 1)

    def forward(self, units, f0):
        h = self.pre(torch.cat([units, f0], dim=1))
        for dilated, mix in zip(self.dilated, self.mix, strict=True):
            a, b = dilated(h).chunk(2, dim=1)
            h = h + mix(torch.tanh(a) * torch.sigmoid(b))
        return self.out(h)


def run(rank, epochs=3, batch_size=8):
    torch.manual_seed(1234)
    dataset = Phrases(256, 120, seed=9)
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
    model = DDP(Synthesizer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.8, 0.99))
    for epoch in range(epochs):
        start = time.time()
        for units, f0, mel in loader:
            loss = F.l1_loss(model(units, f0), mel)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"====> epoch {epoch}: mel loss {loss.item():.4f} in {time.time() - start:.1f} s")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(int(os.environ["RANK"]))
    dist.destroy_process_group()
