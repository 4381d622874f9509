"""A light vocoder GAN: mel frames to samples, multi-scale discriminator, a Trainer with two optimizers."""

import logging
import tempfile
import wave
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "sampling_rate": 8000,
    "hop_size": 32,
    "batch_max_steps": 2048,
    "batch_size": 16,
    "train_max_steps": 140,
    "save_interval_steps": 120,
    "log_interval_steps": 40,
    "lambda_adv": 4.0,
}


def write_corpus(root, count, seconds, rate):
    rng = np.random.default_rng(7)
    for i in range(count):
        t = np.arange(seconds * rate) / rate
        f0 = rng.uniform(90, 300) * (1 + 0.02 * np.sin(2 * np.pi * rng.uniform(3, 6) * t))
        x = sum(np.sin(2 * np.pi * k * np.cumsum(f0) / rate) / k for k in range(1, 6))
        x = np.int16(6000 * x / np.abs(x).max() + 200 * rng.standard_normal(len(t)))
        with wave.open(str(root / f"utt{i:03d}.wav"), "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(rate)
            out.writeframes(x.tobytes())


class AudioMelDataset(Dataset):
    def __init__(self, root, hop):
        self.items = []
        window = np.hanning(4 * hop)
        for path in sorted(Path(root).glob("*.wav")):
            with wave.open(str(path), "rb") as file:
                audio = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768
            frames = np.lib.stride_tricks.sliding_window_view(np.pad(audio, 2 * hop), 4 * hop)[::hop]
            mag = np.abs(np.fft.rfft(frames * window, axis=1))[:, 1:]
            mel = np.log(mag.reshape(len(mag), 32, -1).mean(-1) + 1e-4).astype(np.float32)
            self.items.append((audio, mel))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, idx):
        return self.items[idx]


class Collater:
    def __init__(self, batch_max_steps, hop):
        self.steps, self.hop, self.frames = batch_max_steps, hop, batch_max_steps // hop
        self.rng = np.random.default_rng(3)

    def __call__(self, batch):
        y_batch, c_batch = [], []
        for x, c in batch:
            start = int(self.rng.integers(0, len(c) - self.frames - 1))
            y_batch.append(x[start * self.hop : start * self.hop + self.steps])
            c_batch.append(c[start : start + self.frames].T)
        y_batch = torch.tensor(y_batch, dtype=torch.float).unsqueeze(1)
        c_batch = torch.tensor(c_batch, dtype=torch.float)
        return c_batch, y_batch


class Generator(nn.Module):
    def __init__(self, mels=32, width=16):
        super().__init__()
        layers = [nn.Conv1d(mels, width * 2, 5, padding=2)]
        for i, up in enumerate((4, 4, 2)):
            chans = width * 2 if i == 0 else width
            layers += [nn.LeakyReLU(0.2), nn.ConvTranspose1d(chans, width, 2 * up, up, up // 2)]
        self.net = nn.Sequential(*layers, nn.LeakyReLU(0.2), nn.Conv1d(width, 1, 7, padding=3), nn.Tanh())

    def forward(self, c):
        return self.net(c)


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.scales = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(1, width, 15, 4, 7),
                nn.LeakyReLU(0.2),
                nn.Conv1d(width, width, 15, 4, 7),
                nn.LeakyReLU(0.2),
                nn.Conv1d(width, 1, 3, padding=1),
            )
            for _ in range(2)
        )

    def forward(self, x):
        return [net(F.avg_pool1d(x, 2**i) if i else x) for i, net in enumerate(self.scales)]


def stft_loss(x, y):
    total = 0.0
    for size in (256, 128):
        window = torch.hann_window(size)
        a, b = (torch.stft(v.squeeze(1), size, size // 4, window=window, return_complex=True).abs() for v in (x, y))
        total = total + F.l1_loss(torch.log(a + 1e-4), torch.log(b + 1e-4))
    return total


class Trainer:
    def __init__(self, config, loader, model, optimizer, out):
        self.config, self.loader, self.model, self.optimizer, self.out = config, loader, model, optimizer, out
        self.steps, self.finish = 0, False

    def run(self):
        while not self.finish:
            for batch in self.loader:
                self._train_step(batch)
                if self.steps >= self.config["train_max_steps"]:
                    self.finish = True
                    break

    def _train_step(self, batch):
        c, y = batch
        y_ = self.model["G"](c)
        adv = sum(F.mse_loss(p, torch.ones_like(p)) for p in self.model["D"](y_))
        gen_loss = stft_loss(y_, y) + self.config["lambda_adv"] * adv
        self.optimizer["G"].zero_grad()
        gen_loss.backward()
        self.optimizer["G"].step()
        real, fake = self.model["D"](y), self.model["D"](y_.detach())
        dis_loss = sum(F.mse_loss(r, torch.ones_like(r)) for r in real)
        dis_loss = dis_loss + sum(F.mse_loss(f, torch.zeros_like(f)) for f in fake)
        self.optimizer["D"].zero_grad()
        dis_loss.backward()
        self.optimizer["D"].step()
        self.steps += 1
        if self.steps % self.config["log_interval_steps"] == 0:
            logging.info("(Steps: %d) generator %.3f discriminator %.3f", self.steps, gen_loss.item(), dis_loss.item())
        if self.steps % self.config["save_interval_steps"] == 0:
            torch.save({k: m.state_dict() for k, m in self.model.items()}, self.out / f"checkpoint-{self.steps}.pkl")


def main():
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_corpus(root, 64, 1, CONFIG["sampling_rate"])
        loader = DataLoader(
            AudioMelDataset(root, CONFIG["hop_size"]),
            batch_size=CONFIG["batch_size"],
            shuffle=True,
            collate_fn=Collater(CONFIG["batch_max_steps"], CONFIG["hop_size"]),
        )
        model = {"G": Generator(), "D": Discriminator()}
        optimizer = {k: torch.optim.RAdam(m.parameters(), lr=1e-3) for k, m in model.items()}
        Trainer(CONFIG, loader, model, optimizer, root).run()


if __name__ == "__main__":
    main()
