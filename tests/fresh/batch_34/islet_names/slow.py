"""Made-up names of islets, letter by letter: convolutions that merge neighbours over a window of letters."""

import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

ALPHABET = ".abcdefghijklmnopqrstuvwxyz"
INDEX = {letter: number for number, letter in enumerate(ALPHABET)}
STARTS = ("sker", "hol", "gras", "tor", "lun", "brei", "vest", "krok", "sand", "mel", "fugl", "hav")
MIDDLES = ("e", "a", "ings", "er", "en", "is", "ste", "")
ENDS = ("oy", "holm", "skjer", "vik", "sund", "nes", "flu", "bo", "ey")


@dataclass
class Config:
    names: int = 4000
    window: int = 8
    embedding: int = 48
    hidden: int = 576
    batch_size: int = 32
    steps: int = 700
    lr: float = 0.12
    weight_decay: float = 1e-4
    report_every: int = 100
    seed: int = 2_147


def invent_names(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [rng.choice(STARTS) + rng.choice(MIDDLES) + rng.choice(ENDS) for _ in range(count)]


def windows(names: list[str], size: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = [], []
    for name in names:
        context = [0] * size
        for letter in name + ".":
            inputs.append(context)
            targets.append(INDEX[letter])
            context = [*context[1:], INDEX[letter]]
    return torch.tensor(inputs), torch.tensor(targets)


class MergePairs(nn.Module):
    """Joins each two neighbours into one place."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.linear = nn.Linear(2 * width, hidden, bias=False)
        self.norm = nn.BatchNorm1d(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, places, width = x.shape
        x = self.linear(x.reshape(batch, places // 2, 2 * width))
        return torch.tanh(self.norm(x.transpose(1, 2)).transpose(1, 2))


class NameModel(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.letters = nn.Embedding(len(ALPHABET), config.embedding)
        self.merges = nn.Sequential(
            MergePairs(config.embedding, config.hidden),
            MergePairs(config.hidden, config.hidden),
            MergePairs(config.hidden, config.hidden),
        )
        self.head = nn.Linear(config.hidden, len(ALPHABET))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.merges(self.letters(ids)).squeeze(1))

    @torch.no_grad()
    def invent(self, window: int, generator: torch.Generator) -> str:
        context, name = [0] * window, ""
        while len(name) < 20:
            odds = F.softmax(self(torch.tensor([context])), dim=-1)
            choice = torch.multinomial(odds, 1, generator=generator).item()
            if choice == 0:
                break
            name += ALPHABET[choice]
            context = [*context[1:], choice]
        return name


@torch.no_grad()
def update_ratios(model: nn.Module, lr: float) -> dict[str, float]:
    """How large the update of each matrix is in comparison with its entries, as a power of ten."""
    return {
        name: ((lr * parameter.grad).std() / parameter.std()).log10().item()
        for name, parameter in model.named_parameters()
        if parameter.ndim == 2
    }


def report(step: int, losses: list[torch.Tensor], ratios: list[dict[str, float]]) -> None:
    loss = torch.stack(losses).mean().item()
    means = {name: sum(row[name] for row in ratios) / len(ratios) for name in ratios[0]}
    columns = " ".join(f"{name.removesuffix('.weight')} {value:.2f}" for name, value in means.items())
    print(f"step {step}: loss {loss:.3f}, updates {columns}")


@torch.no_grad()
def held_out_loss(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    model.eval()
    return F.cross_entropy(model(inputs), targets).item()


def main() -> None:
    config = Config()
    torch.manual_seed(config.seed)
    names = invent_names(config.names, config.seed)
    border = int(0.9 * len(names))
    inputs, targets = windows(names[:border], config.window)
    model = NameModel(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=0.9, weight_decay=config.weight_decay)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)

    losses, ratios = [], []
    for step in range(1, config.steps + 1):
        chosen = torch.randint(len(inputs), (config.batch_size,))
        loss = F.cross_entropy(model(inputs[chosen]), targets[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        ratios.append(update_ratios(model, scheduler.get_last_lr()[0]))
        scheduler.step()
        if step % config.report_every == 0:
            report(step, losses, ratios)
            losses, ratios = [], []

    print(f"held-out loss {held_out_loss(model, *windows(names[border:], config.window)):.3f}")
    generator = torch.Generator().manual_seed(config.seed)
    print("invented:", ", ".join(model.invent(config.window, generator) for _ in range(5)))


if __name__ == "__main__":
    main()
