"""Text to mel spectrogram: a small attention model in the manner of Tacotron."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class AudioProcessor:
    def __init__(self, rate=16000, n_fft=1024, hop=256, mels=40):
        self.n_fft, self.hop = n_fft, hop
        self.window = np.hanning(n_fft)
        edges = 700 * (np.exp(np.linspace(0, np.log(1 + rate / 2 / 700), mels + 2)) - 1)
        bins = np.linspace(0, rate / 2, n_fft // 2 + 1)
        rise = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        fall = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
        self.basis = np.maximum(0, np.minimum(rise, fall))

    def melspectrogram(self, wave):
        frames = np.lib.stride_tricks.sliding_window_view(wave, self.n_fft)[:: self.hop]
        power = np.abs(np.fft.rfft(frames * self.window, axis=1)) ** 2
        return np.log(1e-5 + power @ self.basis.T).astype(np.float32)


class SpeechDataset(Dataset):
    def __init__(self, audio, size=160, seed=0):
        self.audio = audio
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(size):
            text = rng.integers(1, 40, rng.integers(10, 24))
            pitch = np.repeat(100 + 20 * text, 900)
            wave = np.sin(2 * np.pi * np.cumsum(pitch) / 16000) + 0.05 * rng.standard_normal(len(pitch))
            self.items.append((torch.from_numpy(text), wave))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]

    def collate(self, batch):
        texts = nn.utils.rnn.pad_sequence([text for text, _ in batch], batch_first=True)
        mels = [self.audio.melspectrogram(wave) for _, wave in batch]
        mels = nn.utils.rnn.pad_sequence([torch.from_numpy(mel) for mel in mels], batch_first=True)
        return texts, mels


class TextToMel(nn.Module):
    def __init__(self, width=96, mels=40):
        super().__init__()
        self.embed = nn.Embedding(40, width, padding_idx=0)
        self.encoder = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.prenet = nn.Sequential(nn.Linear(mels, width), nn.ReLU(), nn.Dropout(0.5))
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.out = nn.Linear(2 * width, mels)

    def forward(self, texts, mels):
        memory, _ = self.encoder(self.embed(texts))
        shifted = F.pad(mels[:, :-1], (0, 0, 1, 0))
        queries, _ = self.decoder(self.prenet(shifted))
        context, _ = self.attention(queries, memory, memory, key_padding_mask=texts == 0)
        return self.out(torch.cat([queries, context], -1))


def main():
    torch.manual_seed(1)
    dataset = SpeechDataset(AudioProcessor())
    loader = DataLoader(dataset, batch_size=16, shuffle=True, collate_fn=dataset.collate)
    model = TextToMel()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(10):
        for texts, mels in loader:
            loss = F.l1_loss(model(texts, mels), mels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
