"""A deep residual network for tabular data, with gradients clipped against its noisy targets."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)

    def forward(self, x):
        return x + self.outer(torch.relu(self.inner(self.norm(x))))


def build(inputs, width, depth):
    return nn.Sequential(nn.Linear(inputs, width), *[Layer(width) for _ in range(depth)], nn.Linear(width, 1))


def main():
    x = torch.randn(16_000, 40)
    y = x[:, :5].prod(1) + x[:, 5] + 2 * torch.randn(16_000).pow(3)
    loader = DataLoader(TensorDataset(x, y), batch_size=256, shuffle=True)
    model = build(40, 96, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=3 * len(loader))
    for epoch in range(3):
        model.train()
        for features, wanted in loader:
            loss = nn.functional.smooth_l1_loss(model(features).squeeze(-1), wanted)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: {loss.item():.4f}, rate {schedule.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main()
