"""Binding sites in DNA: windows of overlapping 6-mers, each a one-hot vector, through a projection and a network."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
K, LENGTH = 6, 106
KMERS = 4**K


class Windows(Dataset):
    def __init__(self, count):
        bases = torch.randint(0, 4, (count, LENGTH))
        powers = 4 ** torch.arange(K)
        self.kmers = (bases.unfold(1, K, 1) * powers).sum(-1)
        self.bound = (bases[:, 40:60] == 2).float().mean(1) > 0.25

    def __len__(self):
        return len(self.kmers)

    def __getitem__(self, index):
        return self.kmers[index], self.bound[index].float()


class SiteNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.project = nn.Embedding(KMERS, width)
        self.conv = nn.Conv1d(width, width, 8, padding=4)
        self.out = nn.Linear(width, 1)

    def forward(self, kmers):
        x = self.project(kmers)
        x = torch.relu(self.conv(x.transpose(1, 2))).amax(2)
        return self.out(x).squeeze(1)


net = SiteNet()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
loader = DataLoader(Windows(800), batch_size=8, shuffle=True)
for epoch in range(1):
    for step, (kmers, bound) in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(net(kmers), bound)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"epoch {epoch} step {step}: {loss.item():.4f}")
