"""Will a household order again within a week? Tables of orders, embeddings for the categories, a residual MLP."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CARDINALITIES = (12, 40, 7, 24, 150, 5)
NUMBERS = 18


@dataclass
class Config:
    orders: int = 60_000
    dim: int = 12
    width: int = 320
    blocks: int = 3
    batch_size: int = 512
    epochs: int = 5
    lr: float = 2e-3
    weight_decay: float = 1e-3
    seed: int = 640


def make_orders(config: Config) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(config.seed)
    categories = torch.stack([torch.randint(c, (config.orders,), generator=generator) for c in CARDINALITIES], dim=1)
    numbers = torch.randn(config.orders, NUMBERS, generator=generator)
    effects = [torch.randn(c, generator=generator) for c in CARDINALITIES]
    score = torch.stack([effect[categories[:, n]] for n, effect in enumerate(effects)]).sum(0)
    score = score + numbers @ torch.randn(NUMBERS, generator=generator) * 0.4
    score = score + torch.sin(2 * numbers[:, 0]) * numbers[:, 1] + effects[1][categories[:, 1]] * numbers[:, 2]
    again = torch.rand(config.orders, generator=generator) < torch.sigmoid(score - 0.5)
    return categories, numbers, again.float()


class Batches:
    """Tensors in memory, from which a batch is taken by one index for each column."""

    def __init__(self, *tensors: Tensor, batch_size: int, shuffle: bool):
        self.tensors, self.batch_size, self.shuffle = tensors, batch_size, shuffle

    def __len__(self) -> int:
        return len(self.tensors[0]) // self.batch_size

    def __iter__(self):
        size = len(self.tensors[0])
        order = torch.randperm(size) if self.shuffle else torch.arange(size)
        for chosen in order[: len(self) * self.batch_size].split(self.batch_size):
            yield tuple(tensor[chosen] for tensor in self.tensors)


class ResidualBlock(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(F.relu(self.inner(self.norm(x))))


class OrderModel(nn.Module):
    """All categories share one table, in which each column has a range of its own."""

    def __init__(self, dim: int, width: int, blocks: int):
        super().__init__()
        sizes = torch.tensor(CARDINALITIES)
        self.register_buffer("offsets", sizes.cumsum(0) - sizes)
        self.table = nn.Embedding(int(sizes.sum()), dim)
        self.stem = nn.Linear(len(CARDINALITIES) * dim + NUMBERS, width)
        self.blocks = nn.Sequential(*(ResidualBlock(width) for _ in range(blocks)))
        self.head = nn.Linear(width, 1)

    def forward(self, categories: Tensor, numbers: Tensor) -> Tensor:
        embedded = self.table(categories + self.offsets).flatten(1)
        x = self.blocks(self.stem(torch.cat([embedded, numbers], dim=1)))
        return self.head(F.relu(x)).squeeze(1)


@torch.inference_mode()
def evaluate(model: OrderModel, batches: Batches) -> tuple[float, float]:
    model.eval()
    logits, truth = [], []
    for categories, numbers, again in batches:
        logits.append(model(categories, numbers))
        truth.append(again)
    logits, truth = torch.cat(logits), torch.cat(truth)
    loss = F.binary_cross_entropy_with_logits(logits, truth)
    return loss.item(), ((logits > 0) == (truth > 0.5)).float().mean().item()


def main() -> None:
    config = Config()
    torch.manual_seed(config.seed)
    columns = make_orders(config)
    border = int(0.9 * config.orders)
    train = Batches(*(c[:border] for c in columns), batch_size=config.batch_size, shuffle=True)
    test = Batches(*(c[border:] for c in columns), batch_size=2000, shuffle=False)
    model = OrderModel(config.dim, config.width, config.blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.lr, total_steps=config.epochs * len(train))
    for epoch in range(config.epochs):
        model.train()
        total = torch.zeros(())
        for categories, numbers, again in train:
            loss = F.binary_cross_entropy_with_logits(model(categories, numbers), again)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach()
        test_loss, accuracy = evaluate(model, test)
        print(f"epoch {epoch}: train {total.item() / len(train):.4f}, test {test_loss:.4f}, accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
