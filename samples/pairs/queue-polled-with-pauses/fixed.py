"""Which machine in the hall is it? Sound from microphones, mixed with noise by a thread ahead of the training."""

import threading
from queue import Queue

import numpy as np
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Mixer(threading.Thread):
    """Makes noisy batches in the background, `depth` of them ahead of the one in use."""

    def __init__(self, sounds, labels, batch_size, batches, depth=2):
        super().__init__(daemon=True)
        self.sounds, self.labels = sounds, labels
        self.batch_size, self.batches = batch_size, batches
        self.ready = Queue(maxsize=depth)
        self.rng = np.random.default_rng(1)

    def make(self):
        rows = self.rng.integers(0, len(self.sounds), self.batch_size)
        noise = self.rng.standard_normal((self.batch_size, self.sounds.shape[1]), dtype=np.float32)
        loud = self.rng.uniform(0.2, 1.0, (self.batch_size, 1)).astype(np.float32)
        return torch.from_numpy(self.sounds[rows] + loud * noise), torch.from_numpy(self.labels[rows])

    def run(self):
        for _ in range(self.batches):
            self.ready.put(self.make())

    def __iter__(self):
        self.start()
        for _ in range(self.batches):
            yield self.ready.get()


def record(count, length=2048, kinds=6):
    """Each kind of machine hums at its own two pitches."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, kinds, count)
    pitch = np.array([[0.02 * (k + 1), 0.05 + 0.013 * k] for k in range(kinds)])[label]
    time_axis = np.arange(length)
    phase = rng.uniform(0, 6.28, (count, 2, 1))
    return np.sin(pitch[..., None] * time_axis + phase).mean(1).astype(np.float32), label


def main():
    sounds, labels = record(1500)
    model = nn.Sequential(
        nn.Unflatten(1, (1, -1)),
        nn.Conv1d(1, 24, 31, stride=8),
        nn.ReLU(),
        nn.Conv1d(24, 48, 9, stride=4),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(48, 6),
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for step, (sound, label) in enumerate(Mixer(sounds, labels, batch_size=64, batches=240), 1):
        with torch.autocast(device, dtype=torch.bfloat16):
            scores = model(sound.to(device))
        loss = nn.functional.cross_entropy(scores.float(), label.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
