"""Next purchase of a shopper, trained by a loop with callbacks: one prints, one watches for NaN, one saves."""

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

ITEMS, BASKET = 1500, 12


class Callback:
    def on_batch_end(self, loop): ...

    def on_epoch_end(self, loop): ...


class Progress(Callback):
    def __init__(self, every):
        self.every = every

    def on_batch_end(self, loop):
        if loop.step % self.every == 0:
            print(f"epoch {loop.epoch} step {loop.step}: loss {loop.loss.item():.4f}")


class StopOnNan(Callback):
    def on_epoch_end(self, loop):
        if not torch.isfinite(loop.loss).item():
            raise FloatingPointError(f"the loss of step {loop.step} is not finite")


class Checkpointer(Callback):
    """Keeps the last state of the model and of the optimizer, so that a run can go on after a crash."""

    def __init__(self, folder, every_n_steps=5):
        self.path, self.every = Path(folder) / "last.pt", every_n_steps

    def on_batch_end(self, loop):
        if loop.step % self.every == 0:
            state = {"step": loop.step, "model": loop.model.state_dict(), "optimizer": loop.optimizer.state_dict()}
            torch.save(state, self.path)


class NextItem(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.items = nn.Embedding(ITEMS, width)
        self.mix = nn.Sequential(
            nn.Linear(BASKET * width, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width), nn.GELU()
        )
        self.out = nn.Linear(width, ITEMS)

    def forward(self, baskets):
        with torch.autocast(baskets.device.type, dtype=torch.bfloat16):
            return self.out(self.mix(self.items(baskets).flatten(1))).float()


class Loop:
    def __init__(self, model, optimizer, callbacks):
        self.model, self.optimizer, self.callbacks = model, optimizer, callbacks
        self.step, self.epoch, self.loss = 0, 0, None

    def call(self, hook):
        for callback in self.callbacks:
            getattr(callback, hook)(self)

    def fit(self, baskets, following, epochs, batch):
        for self.epoch in range(epochs):
            for rows in torch.randperm(len(baskets), device=baskets.device).split(batch):
                self.loss = F.cross_entropy(self.model(baskets[rows]), following[rows])
                self.optimizer.zero_grad()
                self.loss.backward()
                self.optimizer.step()
                self.step += 1
                self.call("on_batch_end")
            self.call("on_epoch_end")


def shoppers(count, device):
    """Baskets of items, and the item which the last two of them suggest."""
    baskets = torch.randint(0, ITEMS, (count, BASKET), device=device)
    return baskets, (baskets[:, -1] * 7 + baskets[:, -2]) % ITEMS


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = NextItem().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [Progress(40), StopOnNan(), Checkpointer(folder, every_n_steps=5)]
        Loop(model, optimizer, callbacks).fit(*shoppers(25_600, device), epochs=2, batch=256)


if __name__ == "__main__":
    main()
