"""Copies from pageable memory, which cannot run beside anything."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


def main():
    dataset = TensorDataset(torch.randn(10240, 512), torch.randint(0, 10, (10240,)))
    batches = BatchSampler(RandomSampler(dataset), 256, drop_last=True)
    loader = DataLoader(dataset, sampler=batches, batch_size=None)

    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)).to(
        device
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, fused=True)

    for epoch in range(2):
        for inputs, targets in loader:
            inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
            with torch.autocast(device, dtype=torch.bfloat16):
                logits = model(inputs)
            loss = nn.functional.cross_entropy(logits.float(), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
