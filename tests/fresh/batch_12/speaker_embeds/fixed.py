"""Multi-speaker text-to-mel training on generated utterances."""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

HPARAMS = {
    "symbols": 70,
    "mels": 40,
    "speaker_dim": 256,
    "hidden": 128,
    "reduction": 4,
    "max_frames": 240,
    "lr": 1e-3,
}


class Utterances(Dataset):
    """Text as symbol ids, mel spectrogram frames and the embedding of the speaker's voice."""

    def __init__(self, count, speakers, hparams, seed):
        rng = np.random.default_rng(seed)
        voices = rng.normal(size=(speakers, hparams["speaker_dim"]))
        voices /= np.linalg.norm(voices, axis=1, keepdims=True)
        colour = rng.normal(scale=0.3, size=(speakers, hparams["mels"]))
        sounds = rng.normal(size=(hparams["symbols"], hparams["mels"]))
        self.items = []
        for _ in range(count):
            speaker = rng.integers(speakers)
            text = rng.integers(1, hparams["symbols"], rng.integers(14, 40))
            durations = rng.integers(3, 8, len(text))
            mel = np.repeat(sounds[text], durations, axis=0)[: hparams["max_frames"]] + colour[speaker]
            mel += rng.normal(scale=0.05, size=mel.shape)
            self.items.append((text, mel.astype(np.float32), voices[speaker].astype(np.float32)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def pad1d(values, length):
    return np.pad(values, (0, length - len(values)))


def pad2d(frames, length):
    return np.pad(frames, ((0, length - len(frames)), (0, 0)))


def collate_synthesizer(batch, hparams):
    r = hparams["reduction"]
    text_length = max(len(text) for text, _, _ in batch)
    chars = np.stack([pad1d(text, text_length) for text, _, _ in batch])
    frames = [len(mel) for _, mel, _ in batch]
    longest = -(-max(frames) // r) * r
    mel = [pad2d(mel, longest) for _, mel, _ in batch]
    embeds = [embed for _, _, embed in batch]

    chars = torch.from_numpy(chars).long()
    mel = torch.from_numpy(np.stack(mel))
    embeds = torch.from_numpy(np.stack(embeds))
    return chars, mel, embeds, torch.tensor(frames)


class Synthesizer(nn.Module):
    def __init__(self, hparams):
        super().__init__()
        hidden, mels = hparams["hidden"], hparams["mels"]
        self.r = hparams["reduction"]
        self.embed = nn.Embedding(hparams["symbols"], hidden, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(hidden, hidden, 5, padding=2) for _ in range(2))
        self.speaker = nn.Linear(hparams["speaker_dim"], hidden)
        self.prenet = nn.Sequential(nn.Linear(mels, hidden), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, hidden))
        self.decoder = nn.GRU(hidden, hidden, batch_first=True)
        self.attend = nn.MultiheadAttention(hidden, 2, batch_first=True)
        self.to_mel = nn.Linear(2 * hidden, mels * self.r)

    def forward(self, chars, mel, embeds):
        memory = self.embed(chars).transpose(1, 2)
        for conv in self.convs:
            memory = memory + F.relu(conv(memory))
        memory = memory.transpose(1, 2) + self.speaker(embeds)[:, None]
        previous = F.pad(mel[:, self.r - 1 :: self.r], (0, 0, 1, 0))[:, :-1]
        state, _ = self.decoder(self.prenet(previous))
        context, _ = self.attend(state, memory, memory, key_padding_mask=chars == 0, need_weights=False)
        out = self.to_mel(torch.cat([state, context], dim=-1))
        return out.view(out.size(0), -1, mel.size(2))


def masked_l1(predicted, target, frames):
    mask = (torch.arange(target.size(1))[None] < frames[:, None]).unsqueeze(-1)
    return ((predicted - target).abs() * mask).sum() / (mask.sum() * target.size(2))


class Reporter:
    def __init__(self, every):
        self.every, self.total, self.count = every, torch.zeros(()), 0

    def add(self, loss):
        self.total += loss.detach()
        self.count += 1
        if self.count % self.every == 0:
            print(f"| step {self.count} | loss {self.total.item() / self.every:.4f} |")
            self.total.zero_()


def train(args):
    data = Utterances(args.utterances, args.speakers, HPARAMS, seed=1)
    loader = DataLoader(
        data,
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=lambda batch: collate_synthesizer(batch, HPARAMS),
    )
    model = Synthesizer(HPARAMS)
    optimizer = torch.optim.Adam(model.parameters(), lr=HPARAMS["lr"])
    report = Reporter(every=25)
    for _ in range(args.epochs):
        for chars, mel, embeds, frames in loader:
            loss = masked_l1(model(chars, mel, embeds), mel, frames)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            report.add(loss)
    if args.out:
        torch.save(model.state_dict(), Path(args.out))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--utterances", type=int, default=960)
    parser.add_argument("--speakers", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--out", default="")
    torch.manual_seed(1)
    train(parser.parse_args())
