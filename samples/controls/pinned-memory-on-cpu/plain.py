"""Trains on the CPU: batches never leave the host's memory."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

device = "cpu"
torch.manual_seed(0)


def main():
    dataset = TensorDataset(torch.randn(10240, 512), torch.randint(0, 10, (10240,)))
    batches = BatchSampler(RandomSampler(dataset), 256, drop_last=True)
    loader = DataLoader(dataset, sampler=batches, batch_size=None, pin_memory=False)

    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)).to(
        device
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, fused=True)

    for epoch in range(2):
        for inputs, targets in loader:
            inputs, targets = inputs.to(device), targets.to(device)
            with torch.autocast(device, dtype=torch.bfloat16):
                logits = model(inputs)
            loss = nn.functional.cross_entropy(logits.float(), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
