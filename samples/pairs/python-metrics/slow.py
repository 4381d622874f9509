"""A segmentation network whose confusion matrix is kept while it trains."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

classes = 6
images = torch.randn(640, 3, 64, 64)
masks = torch.randint(0, classes, (640, 64, 64))
loader = DataLoader(TensorDataset(images, masks), batch_size=8, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 16, 4, stride=4), nn.ReLU(), nn.Conv2d(16, classes, 3, padding=1), nn.Upsample(scale_factor=4)
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

for epoch in range(2):
    confusion = torch.zeros(classes, classes, dtype=torch.long)
    for inputs, targets in loader:
        logits = model(inputs.to(device))
        loss = nn.functional.cross_entropy(logits, targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        predicted = logits.argmax(1).cpu()
        rows = [[0] * classes for _ in range(classes)]
        for wanted, seen in zip(targets.flatten().tolist(), predicted.flatten().tolist(), strict=True):
            rows[wanted][seen] += 1
        confusion += torch.tensor(rows)
    accuracy = confusion.diag().sum() / confusion.sum()
    print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy:.3f}")
