"""Large batches go from the host to the device in every step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

pictures = torch.randn(512, 3, 128, 128)
labels = torch.randint(0, 10, (512,))


def main():
    loader = DataLoader(
        TensorDataset(pictures, labels), batch_size=32, shuffle=True, pin_memory=torch.cuda.is_available()
    )
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, stride=4),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, stride=4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(784, 10),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        for inputs, targets in loader:
            inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
