"""Species from birdsong: the mel spectrogram and its masking are made for a whole batch at once, inside the model."""

import torch
import torch.nn.functional as F
from torch import nn


def mel_filters(bins, mels, rate):
    def to_mel(hertz):
        return 2595 * torch.log10(1 + hertz / 700)

    top = to_mel(torch.tensor(rate / 2))
    edges = 700 * (10 ** (torch.linspace(0, 1, mels + 2) * top / 2595) - 1)
    hertz = torch.linspace(0, rate / 2, bins)[:, None]
    rising = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0)


class LogMel(nn.Module):
    def __init__(self, rate=8000, window=256, hop=128, mels=40):
        super().__init__()
        self.window_size, self.hop = window, hop
        self.register_buffer("window", torch.hann_window(window))
        self.register_buffer("filters", mel_filters(window // 2 + 1, mels, rate))

    @torch.no_grad()
    def forward(self, sounds):
        spectrum = torch.stft(sounds, self.window_size, self.hop, window=self.window, return_complex=True)
        mel = torch.view_as_real(spectrum).square().sum(-1).transpose(1, 2) @ self.filters
        mel = (mel + 1e-6).log().transpose(1, 2)
        if self.training:
            places = torch.arange(mel.shape[2])
            start = torch.randint(mel.shape[2] - 8, (len(mel), 1))
            hidden = (places >= start) & (places < start + 8)
            mel = mel.masked_fill(hidden[:, None], float(mel.mean()))
        return mel[:, None]


class Classifier(nn.Module):
    def __init__(self, species, width=24):
        super().__init__()
        self.front = LogMel()
        blocks, before = [], 1
        for out in (width, 2 * width, 4 * width):
            blocks += [
                nn.Conv2d(before, out, 3, padding=1, bias=False),
                nn.BatchNorm2d(out),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
            before = out
        self.blocks = nn.Sequential(*blocks)
        self.out = nn.Linear(before, species)

    def forward(self, sounds):
        return self.out(self.blocks(self.front(sounds)).mean(dim=(2, 3)))


def make_songs(count, species, samples, seed):
    gen = torch.Generator().manual_seed(seed)
    label = torch.randint(species, (count,), generator=gen)
    time = torch.arange(samples) / 8000
    pitch = 600 + 250 * label[:, None] + 100 * torch.sin(2 * torch.pi * (2 + label[:, None]) * time)
    songs = torch.sin(2 * torch.pi * (pitch / 8000).cumsum(1)) + 0.5 * torch.randn(count, samples, generator=gen)
    return songs, label


def main(epochs=5, batch=16):
    torch.manual_seed(0)
    songs, label = make_songs(640, 8, 8000, seed=4)
    model = Classifier(8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        right = torch.zeros((), dtype=torch.long)
        for rows in torch.randperm(len(songs)).split(batch):
            logits = model(songs[rows])
            loss = F.cross_entropy(logits, label[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.argmax(1) == label[rows]).sum()
        print(f"epoch {epoch}: accuracy {right.item() / len(songs):.3f}")


if __name__ == "__main__":
    main()
