"""Knowledge distillation of a wide classifier into a narrow one."""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width * 2, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(width * 2)
        self.conv3 = nn.Conv2d(width * 2, width * 4, 3, padding=1)
        self.bn3 = nn.BatchNorm2d(width * 4)
        self.fc1 = nn.Linear(width * 4 * 3 * 3, width * 4)
        self.fc2 = nn.Linear(width * 4, classes)

    def forward(self, s):
        s = F.relu(F.max_pool2d(self.bn1(self.conv1(s)), 2))
        s = F.relu(F.max_pool2d(self.bn2(self.conv2(s)), 2))
        s = F.relu(F.max_pool2d(self.bn3(self.conv3(s)), 2))
        return self.fc2(F.relu(self.fc1(s.flatten(1))))


def fetch_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 10, (n,), generator=g)
    pattern = torch.randn(10, 3, 24, 24, generator=torch.Generator().manual_seed(9))
    return TensorDataset(pattern[y] + 1.5 * torch.randn(n, 3, 24, 24, generator=g), y)


def loss_fn_kd(outputs, labels, teacher_outputs, alpha=0.9, temperature=4.0):
    soft = F.kl_div(
        F.log_softmax(outputs / temperature, dim=1),
        F.softmax(teacher_outputs / temperature, dim=1),
        reduction="batchmean",
    )
    return soft * (alpha * temperature**2) + F.cross_entropy(outputs, labels) * (1.0 - alpha)


def train_kd(student, teacher, optimizer, loader):
    student.train()
    teacher.eval()
    seen = total = 0
    for images, labels in loader:
        logits = student(images)
        with torch.no_grad():
            teacher_logits = teacher(images)
        loss = loss_fn_kd(logits, labels, teacher_logits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(images)
        seen += len(images)
    return total / seen


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    return hits / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(230)
    train_dl = DataLoader(fetch_data(1216, 0), args.batch_size, shuffle=True)
    dev_dl = DataLoader(fetch_data(256, 1), 128)
    teacher, student = Net(width=32), Net(width=12)
    optimizer = optim.Adam(student.parameters(), lr=1e-3)
    best = 0.0
    with tempfile.TemporaryDirectory() as model_dir:
        for epoch in range(args.epochs):
            loss = train_kd(student, teacher, optimizer, train_dl)
            accuracy = evaluate(student, dev_dl)
            print(f"Epoch {epoch + 1}/{args.epochs} loss {loss:.4f} accuracy {accuracy:.3f}")
            if accuracy >= best:
                best = accuracy
                torch.save(student.state_dict(), Path(model_dir) / "best.pth.tar")


if __name__ == "__main__":
    main()
