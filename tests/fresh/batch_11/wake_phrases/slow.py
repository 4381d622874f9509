"""Wake phrases: is the phrase said in this second of sound?"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Phrases(Dataset):
    """Sounds in memory; noise is mixed in at a random level."""

    def __init__(self, count, samples, seed):
        gen = torch.Generator().manual_seed(seed)
        self.sounds = torch.randn(count, samples, generator=gen)
        self.noise = torch.randn(4 * samples, generator=gen)
        self.labels = torch.randint(2, (count,), generator=gen)
        time = torch.arange(samples) / samples
        self.sounds[self.labels == 1] += 2 * torch.sin(400 * time + 200 * time**2)

    def __len__(self):
        return len(self.sounds)

    def __getitem__(self, index):
        sound = self.sounds[index]
        start = int(torch.randint(len(self.noise) - len(sound), ()))
        level = 0.2 * torch.rand(())
        return sound + level * self.noise[start : start + len(sound)], self.labels[index]


class Detector(nn.Module):
    def __init__(self, bins=129, width=32):
        super().__init__()
        self.register_buffer("window", torch.hann_window(256))
        self.front = nn.Conv1d(bins, width, 3, stride=2)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, 2)

    def forward(self, sounds):
        spectrum = torch.stft(sounds, 256, 256, window=self.window, return_complex=True).abs().log1p()
        h = F.relu(self.front(spectrum)).transpose(1, 2)
        return self.out(self.gru(h)[0][:, -1])


def main(epochs=8, batch_size=64, num_workers=16):
    torch.manual_seed(0)
    data = Phrases(1600, 8000, seed=4)
    loader = DataLoader(data, batch_size=batch_size, shuffle=True, num_workers=num_workers)
    model = Detector()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        right = 0
        for sounds, labels in loader:
            scores = model(sounds)
            loss = F.cross_entropy(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += int((scores.argmax(1) == labels).sum())
        print(f"epoch {epoch}: {right / len(data):.3f}")


if __name__ == "__main__":
    main()
