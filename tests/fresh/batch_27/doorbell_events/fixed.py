"""Which sounds are heard at a front door, frame by frame: a convolutional recurrent network."""

import math
import time

import torch
from torch import nn

HPARAMS = {
    "clips": 480,
    "frames": 96,
    "mels": 40,
    "events": 5,
    "channels": 24,
    "hidden": 96,
    "batch": 16,
    "epochs": 5,
    "lr": 1e-3,
    "seed": 12,
}


def synth_clips(hp):
    gen = torch.Generator().manual_seed(hp["seed"])
    clips = 0.3 * torch.randn(hp["clips"], hp["frames"], hp["mels"], generator=gen)
    active = torch.zeros(hp["clips"], hp["frames"], hp["events"])
    templates = torch.randn(hp["events"], hp["mels"], generator=gen)
    onset = torch.randint(0, hp["frames"] - 20, (hp["clips"], hp["events"]), generator=gen)
    present = torch.rand(hp["clips"], hp["events"], generator=gen) < 0.5
    step = torch.arange(hp["frames"])
    for event in range(hp["events"]):
        inside = (step >= onset[:, event, None]) & (step < onset[:, event, None] + 8 + 3 * event)
        inside = inside & present[:, event, None]
        active[:, :, event] = inside.float()
        clips += inside.unsqueeze(2) * templates[event]
    return clips, active


class ConvFrontEnd(nn.Module):
    def __init__(self, channels, mels):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d((1, 4)),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d((1, 5)),
        )
        self.out_features = channels * (mels // 20)

    def forward(self, clips):
        maps = self.layers(clips.unsqueeze(1))
        return maps.permute(0, 2, 1, 3).flatten(2)


class Recurrence(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.rnn = nn.GRU(inputs, hidden, batch_first=True)

    def forward(self, features):
        states, _ = self.rnn(features)
        return states


class EventDetector(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.front = ConvFrontEnd(hp["channels"], hp["mels"])
        self.recurrence = Recurrence(self.front.out_features, hp["hidden"])
        self.classify = nn.Linear(hp["hidden"], hp["events"])

    def forward(self, clips):
        return self.classify(self.recurrence(self.front(clips)))


def batches(clips, active, size, generator):
    order = torch.randperm(len(clips), generator=generator)
    for chosen in order.split(size):
        yield clips[chosen], active[chosen]


@torch.no_grad()
def frame_f1(model, clips, active):
    model.eval()
    guess = model(clips) > 0
    truth = active > 0.5
    model.train()
    hits = (guess & truth).sum()
    return (2 * hits / (guess.sum() + truth.sum()).clamp(min=1)).item()


def main(hp=HPARAMS):
    torch.manual_seed(hp["seed"])
    clips, active = synth_clips(hp)
    model = EventDetector(hp)
    optimizer = torch.optim.Adam(model.parameters(), lr=hp["lr"], fused=True)
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.full((hp["events"],), 4.0))
    shuffler = torch.Generator().manual_seed(hp["seed"])
    for epoch in range(hp["epochs"]):
        began, total = time.perf_counter(), torch.zeros(())
        for batch, target in batches(clips, active, hp["batch"], shuffler):
            loss = criterion(model(batch), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.detach()
        mean = total.item() / math.ceil(len(clips) / hp["batch"])
        print(f"[{epoch}] loss={mean:.4f} f1={frame_f1(model, clips[:64], active[:64]):.3f}")
        print(f"    {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
