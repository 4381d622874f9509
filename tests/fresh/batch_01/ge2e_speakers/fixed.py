"""Generalised end-to-end loss for speaker verification."""

import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

hp = {
    "n_speakers": 5,
    "m_utterances": 4,
    "frames": 60,
    "mels": 40,
    "hidden": 128,
    "proj": 64,
    "epochs": 4,
    "lr": 0.01,
    "checkpoint_interval": 2,
}


class SpeakerDataset(Dataset):
    """Each item: M utterances of one speaker, a random walk around the speaker's own spectrum."""

    def __init__(self, speakers=200):
        self.generator = torch.Generator().manual_seed(2)
        self.voices = torch.randn(speakers, hp["mels"], generator=self.generator)

    def __len__(self):
        return len(self.voices)

    def __getitem__(self, i):
        shape = (hp["m_utterances"], hp["frames"], hp["mels"])
        return self.voices[i] + torch.randn(shape, generator=self.generator).cumsum(1) * 0.1


class SpeechEmbedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(hp["mels"], hp["hidden"], batch_first=True)
        self.projection = nn.Linear(hp["hidden"], hp["proj"])

    def forward(self, x):
        x, _ = self.lstm(x)
        return F.normalize(self.projection(x[:, -1]), dim=1)


class GE2ELoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(10.0))
        self.b = nn.Parameter(torch.tensor(-5.0))

    def similarity(self, embeddings):
        n, m, _ = embeddings.shape
        centroids = embeddings.mean(1)
        others = (embeddings.sum(1, keepdim=True) - embeddings) / (m - 1)
        own = F.cosine_similarity(embeddings, others, dim=2)
        cossim = F.cosine_similarity(embeddings[:, :, None], centroids[None, None], dim=3)
        same = torch.eye(n, dtype=torch.bool)[:, None, :].expand(n, m, n)
        return torch.where(same, own[:, :, None], cossim) + 1e-6

    def forward(self, embeddings):
        sim = self.w.clamp(min=1e-6) * self.similarity(embeddings) + self.b
        n, m, _ = sim.shape
        target = torch.arange(n).repeat_interleave(m)
        return F.cross_entropy(sim.flatten(0, 1), target)


def train():
    torch.manual_seed(0)
    loader = DataLoader(SpeakerDataset(), batch_size=hp["n_speakers"], shuffle=True, drop_last=True)
    net, criterion = SpeechEmbedder(), GE2ELoss()
    optimizer = torch.optim.SGD([*net.parameters(), *criterion.parameters()], lr=hp["lr"])
    iteration = 0
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(hp["epochs"]):
            total = 0.0
            for utterances in loader:
                n, m = utterances.shape[:2]
                order = torch.randperm(n * m)
                embeddings = net(utterances.flatten(0, 1)[order])[order.argsort()].view(n, m, -1)
                optimizer.zero_grad()
                loss = criterion(embeddings)
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 3.0)
                nn.utils.clip_grad_norm_(criterion.parameters(), 1.0)
                optimizer.step()
                total += loss.item()
                iteration += 1
            print(f"Epoch:{epoch + 1} iteration {iteration} TLoss:{total / len(loader):.4f}")
            if (epoch + 1) % hp["checkpoint_interval"] == 0:
                torch.save(net.state_dict(), f"{folder}/ckpt_epoch_{epoch + 1}.pth")


if __name__ == "__main__":
    train()
