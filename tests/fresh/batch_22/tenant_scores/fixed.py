"""Late payments of tenants from what they wrote on a form: embeddings of many categorical answers and a network."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class FormConfig:
    rows: int = 40_000
    answers: list[int] = field(default_factory=lambda: [4 + (7 * i) % 61 for i in range(52)])
    numbers: int = 12
    dim: int = 12
    hidden: tuple[int, ...] = (256, 128)
    dropout: float = 0.1
    batch_size: int = 256
    epochs: int = 4
    lr: float = 1e-3
    seed: int = 29


class Forms:
    """Answers as codes, numbers as they are, and whether the rent came late in the first year."""

    def __init__(self, config: FormConfig):
        generator = torch.Generator().manual_seed(config.seed)
        codes = [torch.randint(0, size, (config.rows,), generator=generator) for size in config.answers]
        self.codes = torch.stack(codes, dim=1)
        self.numbers = torch.randn(config.rows, config.numbers, generator=generator)
        risk = self.numbers @ torch.randn(config.numbers, generator=generator) * 0.3
        for column, size in enumerate(config.answers[:8]):
            risk += 0.5 * torch.randn(size, generator=generator)[self.codes[:, column]]
        noise = torch.rand(config.rows, generator=generator)
        self.late = (noise < torch.sigmoid(risk - 1)).float()

    def batches(self, rows: torch.Tensor, size: int):
        for picked in rows.split(size):
            yield self.codes[picked], self.numbers[picked], self.late[picked]


class AnswerEmbeddings(nn.Module):
    def __init__(self, answers: list[int], dim: int):
        super().__init__()
        weights = torch.randn(sum(answers), dim) * 0.05
        self.table = nn.Embedding.from_pretrained(weights, freeze=False)
        self.register_buffer("offsets", torch.tensor([0, *answers[:-1]]).cumsum(0))

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return self.table(codes + self.offsets).flatten(1)


class ScoreNet(nn.Module):
    def __init__(self, config: FormConfig):
        super().__init__()
        self.embeddings = AnswerEmbeddings(config.answers, config.dim)
        self.norm = nn.BatchNorm1d(config.numbers)
        widths = [len(config.answers) * config.dim + config.numbers, *config.hidden]
        layers: list[nn.Module] = []
        for before, after in zip(widths, widths[1:]):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(config.dropout)]
        self.deep = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, codes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        together = torch.cat([self.embeddings(codes), self.norm(numbers)], dim=1)
        return self.deep(together).squeeze(1)


def auc(scores: torch.Tensor, labels: torch.Tensor) -> float:
    ranks = torch.empty_like(scores)
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=scores.dtype)
    positive = labels.sum()
    above = ranks[labels > 0].sum() - positive * (positive + 1) / 2
    return (above / (positive * (len(labels) - positive))).item()


class Trainer:
    def __init__(self, config: FormConfig):
        torch.manual_seed(config.seed)
        self.config = config
        self.forms = Forms(config)
        order = torch.randperm(config.rows)
        self.train_rows, self.valid_rows = order[: int(0.9 * config.rows)], order[int(0.9 * config.rows) :]
        self.model = ScoreNet(config)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)

    def fit(self) -> None:
        for epoch in range(self.config.epochs):
            rows = self.train_rows[torch.randperm(len(self.train_rows))]
            total = torch.zeros(())
            for codes, numbers, late in self.forms.batches(rows, self.config.batch_size):
                loss = F.binary_cross_entropy_with_logits(self.model(codes, numbers), late)
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
                total += loss.detach() * len(late)
            print(f"epoch {epoch}: loss {total.item() / len(rows):.4f}, area {self.validate():.4f}")

    @torch.no_grad()
    def validate(self) -> float:
        self.model.eval()
        parts = [
            (self.model(codes, numbers), late) for codes, numbers, late in self.forms.batches(self.valid_rows, 2000)
        ]
        self.model.train()
        return auc(torch.cat([scores for scores, _ in parts]), torch.cat([late for _, late in parts]))


if __name__ == "__main__":
    Trainer(FormConfig()).fit()
