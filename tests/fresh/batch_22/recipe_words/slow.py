"""The next ingredient of a recipe from those before it: a recurrent recommender over lists of ingredients."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


def get_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipes", type=int, default=7000)
    parser.add_argument("--ingredients", type=int, default=1500)
    parser.add_argument("--length", type=int, default=24)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=13)
    return parser.parse_args()


def write_recipes(args: argparse.Namespace) -> torch.Tensor:
    """Ingredients come in cuisines, and follow upon each other in a chain with jumps."""
    generator = torch.Generator().manual_seed(args.seed)
    follows = torch.randint(0, args.ingredients, (args.ingredients, 3), generator=generator)
    recipe = torch.empty(args.recipes, args.length + 1, dtype=torch.long)
    recipe[:, 0] = torch.randint(0, args.ingredients, (args.recipes,), generator=generator)
    for place in range(1, args.length + 1):
        choice = torch.randint(0, 3, (args.recipes,), generator=generator)
        following = follows[recipe[:, place - 1], choice]
        jump = torch.rand(args.recipes, generator=generator) < 0.1
        anything = torch.randint(0, args.ingredients, (args.recipes,), generator=generator)
        recipe[:, place] = torch.where(jump, anything, following)
    return recipe


class NextIngredient(Dataset):
    """All ingredients but one, and the one that is asked for."""

    def __init__(self, recipes: torch.Tensor):
        self.before = recipes[:, :-1]
        self.asked = recipes[:, -1]

    def __len__(self) -> int:
        return len(self.asked)

    def __getitems__(self, rows: list[int]):
        return self.before[rows], self.asked[rows]


class Recommender(nn.Module):
    def __init__(self, args: argparse.Namespace):
        super().__init__()
        self.embed = nn.Embedding(args.ingredients, args.dim)
        self.gru = nn.GRU(args.dim, args.dim, num_layers=args.layers, batch_first=True)
        self.norm = nn.LayerNorm(args.dim)
        self.score = nn.Linear(args.dim, args.ingredients)

    def forward(self, before: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(self.embed(before))
        scores = self.score(self.norm(states))
        return scores[:, -1]


def train_epoch(model: Recommender, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    model.train()
    total = torch.zeros(())
    for before, asked in loader:
        loss = F.cross_entropy(model(before), asked)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


@torch.no_grad()
def recall(model: Recommender, loader: DataLoader, top: int) -> float:
    model.eval()
    hits, count = 0, 0
    for before, asked in loader:
        best = model(before).topk(top, dim=1).indices
        hits += (best == asked[:, None]).any(dim=1).sum().item()
        count += len(asked)
    return hits / count


def main() -> None:
    args = get_args()
    torch.manual_seed(args.seed)
    recipes = write_recipes(args)
    cut = len(recipes) - 400
    options = {"collate_fn": lambda batch: batch}
    train_loader = DataLoader(NextIngredient(recipes[:cut]), args.batch_size, shuffle=True, drop_last=True, **options)
    valid_loader = DataLoader(NextIngredient(recipes[cut:]), 100, **options)
    model = Recommender(args)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    for epoch in range(args.epochs):
        loss = train_epoch(model, train_loader, optimizer)
        scheduler.step()
        print(f"epoch {epoch}: loss {loss:.4f}, recall@10 {recall(model, valid_loader, 10):.4f}")


if __name__ == "__main__":
    main()
