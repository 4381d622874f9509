"""Knowledge distillation: a narrow student learns from the soft answers of a wide teacher."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(2)


def network(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


class Distiller:
    def __init__(self, teacher, student, temperature=4.0, share=0.7):
        self.teacher, self.student = teacher.eval(), student.train()
        self.temperature, self.share = temperature, share

    def loss(self, x, y):
        answers = self.student(x)
        soft = F.softmax(self.teacher(x) / self.temperature, 1)
        told = F.kl_div(F.log_softmax(answers / self.temperature, 1), soft, reduction="batchmean")
        return self.share * self.temperature**2 * told + (1 - self.share) * F.cross_entropy(answers, y)


x, y = torch.randn(1600, 3, 32, 32), torch.randint(0, 10, (1600,))
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
distiller = Distiller(network(64).to(device), network(16).to(device))
optimizer = torch.optim.SGD(distiller.student.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

for epoch in range(3):
    running = 0.0
    for inputs, targets in loader:
        loss = distiller.loss(inputs.to(device), targets.to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        running += loss.item()
    print(f"[{epoch + 1}] {running / len(loader):.4f}")
