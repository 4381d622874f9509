"""Few-shot classification of characters with model-agnostic meta-learning, second order."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F


@dataclass
class Settings:
    n: int = 1  # shots
    k: int = 5  # ways
    q: int = 3  # queries of each class
    meta_batch: int = 4
    inner_steps: int = 1
    inner_lr: float = 0.4
    meta_lr: float = 1e-3
    episodes: int = 130


class Characters:
    """Each class is a smooth random drawing; its samples are shifted and noisy."""

    def __init__(self, classes, seed):
        self.generator = torch.Generator().manual_seed(seed)
        coarse = torch.randn(classes, 1, 7, 7, generator=self.generator)
        self.drawings = F.interpolate(coarse, size=28, mode="bilinear", align_corners=False)

    def task(self, settings):
        chosen = torch.randperm(len(self.drawings), generator=self.generator)[: settings.k]
        per_class = settings.n + settings.q
        images = self.drawings[chosen].unsqueeze(0).expand(per_class, -1, -1, -1, -1)
        shift = torch.randint(-2, 3, (2,), generator=self.generator).tolist()
        images = images.roll(shift, dims=(-2, -1)) + 0.3 * torch.randn(images.shape, generator=self.generator)
        labels = torch.arange(settings.k).repeat(per_class)
        cut = settings.n * settings.k
        images = images.flatten(0, 1)
        return images[:cut], labels[:cut], images[cut:], labels[cut:]


class ConvBlock(nn.Module):
    def __init__(self, inp, out):
        super().__init__()
        self.conv = nn.Conv2d(inp, out, 3, padding=1)
        self.weight, self.bias = nn.Parameter(torch.ones(out)), nn.Parameter(torch.zeros(out))

    def forward(self, x):
        x = F.batch_norm(self.conv(x), None, None, self.weight, self.bias, training=True)
        return F.max_pool2d(torch.relu(x), 2)


class FewShotClassifier(nn.Module):
    def __init__(self, ways, width=24):
        super().__init__()
        self.blocks = nn.Sequential(
            ConvBlock(1, width), ConvBlock(width, width), ConvBlock(width, width), ConvBlock(width, width)
        )
        self.logits = nn.Linear(width, ways)

    def forward(self, x):
        return self.logits(self.blocks(x).flatten(1))


def adapt(model, images, labels, settings):
    """Weights after the inner steps, as functions of the weights before them."""
    fast = dict(model.named_parameters())
    for _ in range(settings.inner_steps):
        loss = F.cross_entropy(functional_call(model, fast, (images,)), labels)
        gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {name: weight - settings.inner_lr * g for (name, weight), g in zip(fast.items(), gradients)}
    return fast


def meta_gradient_step(model, optimizer, tasks, settings):
    task_losses, right = [], 0
    model.train()
    for support, support_labels, query, query_labels in tasks:
        fast = adapt(model, support, support_labels, settings)
        logits = functional_call(model, fast, (query,))
        loss = F.cross_entropy(logits, query_labels)
        right += (logits.detach().argmax(dim=1) == query_labels).sum().item()
        task_losses.append(loss)
    optimizer.zero_grad()
    meta_batch_loss = torch.stack(task_losses).mean()
    meta_batch_loss.backward()
    optimizer.step()
    return meta_batch_loss.detach(), right / (len(tasks) * settings.q * settings.k)


def main():
    settings = Settings()
    torch.manual_seed(440)
    background = Characters(120, 441)
    model = FewShotClassifier(settings.k)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.meta_lr, fused=True)
    for episode in range(1, settings.episodes + 1):
        tasks = [background.task(settings) for _ in range(settings.meta_batch)]
        loss, accuracy = meta_gradient_step(model, optimizer, tasks, settings)
        if episode % 26 == 0:
            print(f"episode {episode}: loss {loss.item():.4f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
