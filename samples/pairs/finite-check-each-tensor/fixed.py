"""Next-event prediction in machine logs; a step with a gradient that is not finite is skipped."""

import machine
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class SafeTrainer:
    """Trains a model and leaves out steps that would spoil it."""

    def __init__(self, model, rate):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=True)
        self.skipped = 0

    def healthy(self):
        """Whether all gradients are finite."""
        norms = torch._foreach_norm([parameter.grad for parameter in self.model.parameters()])
        return bool(torch.isfinite(torch.stack(norms)).all())

    def step(self, events, following):
        loss = nn.functional.cross_entropy(self.model(events), following)
        self.optimizer.zero_grad()
        loss.backward()
        if self.healthy():
            self.optimizer.step()
        else:
            self.skipped += 1
        return loss.detach()

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            total = sum(self.step(events, following) for events, following in loader)
            print(f"epoch {epoch}: {total.item() / len(loader):.4f}, skipped {self.skipped}")


if __name__ == "__main__":
    events, following = machine.histories(1920)
    loader = DataLoader(TensorDataset(events, following), batch_size=32, shuffle=True)
    SafeTrainer(machine.Network(blocks=20), 1e-3).fit(loader, 3)
