"""A convolutional network on pictures held in memory as bytes, channels last, in bfloat16."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


def block(inner, outer):
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(inplace=True)
    )


def main():
    pictures = torch.randint(0, 256, (3840, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(0, 10, (3840,))
    dataset = TensorDataset(pictures, labels)
    batches = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(dataset), 64, drop_last=True)
    loader = DataLoader(dataset, sampler=batches, batch_size=None, pin_memory=device == "cuda")

    model = nn.Sequential(block(3, 64), block(64, 128), block(128, 256), nn.Flatten(), nn.Linear(4096, 10))
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)

    for epoch in range(2):
        for images, wanted in loader:
            images = images.to(device, non_blocking=True).to(memory_format=torch.channels_last).float() / 255
            wanted = wanted.to(device, non_blocking=True)
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(images), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
