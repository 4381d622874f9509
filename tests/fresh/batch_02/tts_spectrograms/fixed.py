"""Text to spectrogram with teacher forcing; wav files, an audio processor and a sorted data set."""

import os
import random
import tempfile
import wave

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class AudioProcessor:
    def __init__(self, rate=16000, fft=1024, hop=128, mels=40):
        self.rate, self.fft, self.hop, self.mels = rate, fft, hop, mels
        self.window = np.hanning(fft)
        edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + rate / 1400), mels + 2) / 2595) - 1)
        freqs = np.linspace(0, rate / 2, fft // 2 + 1)
        rise = (freqs - edges[:-2, None]) / np.diff(edges)[:-1, None]
        fall = (edges[2:, None] - freqs) / np.diff(edges)[1:, None]
        self.basis = np.maximum(0, np.minimum(rise, fall))

    def load_wav(self, path):
        with wave.open(path, "rb") as file:
            return np.frombuffer(file.readframes(file.getnframes()), np.int16) / 32768

    def melspectrogram(self, wav):
        frames = np.lib.stride_tricks.sliding_window_view(np.pad(wav, self.fft // 2, "reflect"), self.fft)[:: self.hop]
        magnitude = np.abs(np.fft.rfft(frames * self.window, axis=1))
        return 20 * np.log10(np.maximum(1e-5, magnitude @ self.basis.T)) / 100 + 1


class TTSDataset(Dataset):
    def __init__(self, root, ap):
        self.ap, self.root = ap, root
        with open(os.path.join(root, "metadata.csv")) as file:
            self.items = [line.strip().split("|") for line in file]
        self.items.sort(key=lambda item: len(item[1]))
        self.wavs = {name: ap.load_wav(os.path.join(root, f"{name}.wav")) for name, _ in self.items}
        self.mels = {name: ap.melspectrogram(wav) for name, wav in self.wavs.items()}

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        name, text = self.items[i]
        return torch.tensor([ord(c) - 96 for c in text]), self.mels[name]

    def collate_fn(self, batch):
        texts, wavs = zip(*batch)
        mel = [w.astype("float32") for w in wavs]
        texts = nn.utils.rnn.pad_sequence(texts, batch_first=True)
        return texts, nn.utils.rnn.pad_sequence([torch.from_numpy(m) for m in mel], batch_first=True)


class Synthesizer(nn.Module):
    def __init__(self, mels, dim=64):
        super().__init__()
        self.embedding = nn.Embedding(28, dim, padding_idx=0)
        self.encoder = nn.Sequential(nn.Conv1d(dim, dim, 5, padding=2), nn.BatchNorm1d(dim), nn.ReLU())
        self.prenet = nn.Sequential(nn.Linear(mels, dim), nn.ReLU(), nn.Dropout(0.5))
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(2 * dim, mels)

    def forward(self, text, mel):
        memory = self.encoder(self.embedding(text).transpose(1, 2)).transpose(1, 2)
        query, _ = self.decoder(self.prenet(nn.functional.pad(mel[:, :-1], (0, 0, 1, 0))))
        context = nn.functional.scaled_dot_product_attention(query, memory, memory)
        return self.out(torch.cat([query, context], -1))


def write_corpus(root, count, rate):
    rng = np.random.default_rng(1)
    with open(os.path.join(root, "metadata.csv"), "w") as meta:
        for i in range(count):
            text = "".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), rng.integers(4, 9)))
            t = np.arange(int(0.07 * rate)) / rate
            sound = np.concatenate([np.sin(2 * np.pi * (200 + 90 * (ord(c) - 97)) * t) for c in text])
            with wave.open(os.path.join(root, f"{i:04d}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(rate)
                file.writeframes((sound * 12000).astype(np.int16).tobytes())
            meta.write(f"{i:04d}|{text}\n")


def main():
    random.seed(54321)
    torch.manual_seed(54321)
    ap = AudioProcessor()
    with tempfile.TemporaryDirectory() as root:
        write_corpus(root, 480, ap.rate)
        dataset = TTSDataset(root, ap)
        loader = DataLoader(dataset, batch_size=8, shuffle=True, collate_fn=dataset.collate_fn)
        model = Synthesizer(ap.mels)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        for epoch in range(3):
            for step, (text, mel) in enumerate(loader):
                loss = nn.functional.l1_loss(model(text, mel), mel)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if step % 20 == 0:
                    print(f" | > EPOCH {epoch} STEP {step} loss {loss.item():.5f}")
            torch.save(model.state_dict(), os.path.join(root, "best_model.pth.tar"))


if __name__ == "__main__":
    main()
