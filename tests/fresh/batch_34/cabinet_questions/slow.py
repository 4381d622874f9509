"""Answers to questions about a cabinet of curiosities: pooled products of picture and question features."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

THINGS, COLOURS, QUESTIONS = 14, 8, 6


@dataclass
class Config:
    examples: int = 2600
    shelves: int = 16
    length: int = 7
    features: int = 96
    question_width: int = 96
    sketch: int = 2048
    batch_size: int = 32
    epochs: int = 4
    lr: float = 1.5e-3
    seed: int = 73


class CabinetDataset(Dataset):
    """A cabinet has a thing of a colour on each shelf; a question asks for the colour of one of them."""

    def __init__(self, config: Config, examples: int, seed: int):
        world = torch.Generator().manual_seed(config.seed)
        looks = torch.randn(THINGS, config.features, generator=world)
        paints = torch.randn(COLOURS, config.features, generator=world)
        generator = torch.Generator().manual_seed(seed)
        things = torch.rand(examples, 64, generator=generator).argsort(1)[:, : config.shelves] % THINGS
        colours = torch.randint(COLOURS, (examples, THINGS), generator=generator)
        colours = colours.gather(1, things)
        noise = 0.3 * torch.randn(examples, config.shelves, config.features, generator=generator)
        self.pictures = looks[things] + paints[colours] + noise
        asked = torch.randint(config.shelves, (examples, 1), generator=generator)
        self.questions = torch.randint(QUESTIONS, (examples, config.length), generator=generator) + THINGS
        self.questions[:, -2] = things.gather(1, asked).squeeze(1)
        self.answers = colours.gather(1, asked).squeeze(1)

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.pictures[index], self.questions[index], self.answers[index]


class CountSketch(nn.Module):
    def __init__(self, features: int, size: int):
        super().__init__()
        self.size = size
        self.register_buffer("places", torch.randint(size, (features,)))
        self.register_buffer("signs", torch.randint(2, (features,)) * 2.0 - 1)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.size(-1)) * self.signs
        sketch = flat.new_zeros(flat.size(0), self.size).index_add(1, self.places, flat)
        return sketch.view(*x.shape[:-1], self.size)


class CompactBilinear(nn.Module):
    """The outer product of two vectors in a sketch: their sketches are convolved by way of the spectrum."""

    def __init__(self, first: int, second: int, size: int):
        super().__init__()
        self.size = size
        self.first, self.second = CountSketch(first, size), CountSketch(second, size)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        spectrum = torch.fft.fft(self.first(x)) * torch.fft.fft(self.second(y))
        product = torch.fft.ifft(spectrum).real
        root = product / torch.sqrt(product.abs() + 1e-3)
        return F.normalize(root, dim=-1)


class AnswerNet(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.words = nn.Embedding(THINGS + QUESTIONS, config.question_width)
        self.reader = nn.GRU(config.question_width, config.question_width, batch_first=True)
        self.joint = CompactBilinear(config.features, config.question_width, config.sketch)
        self.attention = nn.Sequential(nn.Linear(config.sketch, 64), nn.ReLU(), nn.Linear(64, 1))
        self.pooled = CompactBilinear(config.features, config.question_width, config.sketch)
        self.answer = nn.Linear(config.sketch, COLOURS)

    def forward(self, pictures: Tensor, questions: Tensor) -> Tensor:
        _, state = self.reader(self.words(questions))
        question = state[-1]
        shelves = self.joint(pictures, question.unsqueeze(1))
        weights = torch.softmax(self.attention(shelves), dim=1)
        seen = (weights * pictures).sum(1)
        return self.answer(self.pooled(seen, question))


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    hits = [model(pictures, questions).argmax(1) == answers for pictures, questions, answers in loader]
    return torch.cat(hits).float().mean().item()


def main() -> None:
    config = Config()
    torch.manual_seed(config.seed)
    train_set = CabinetDataset(config, config.examples, config.seed + 1)
    test_set = CabinetDataset(config, config.examples // 10, config.seed + 2)
    train_loader = DataLoader(train_set, config.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, 64)
    model = AnswerNet(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.epochs * len(train_loader))

    for epoch in range(1, config.epochs + 1):
        model.train()
        losses = []
        for pictures, questions, answers in train_loader:
            loss = F.cross_entropy(model(pictures, questions), answers)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean().item()
        print(f"epoch {epoch}: loss {mean:.3f}, accuracy {accuracy(model, test_loader):.3f}")


if __name__ == "__main__":
    main()
