"""Next items of a session by self-attention; each position has one negative and the table's gradients are sparse."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def make_sessions(users, items, length, seed):
    """Walks through neighbouring items, jumps now and then."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(0, items, (users, 1), generator=generator)
    moves = torch.randint(1, 4, (users, length), generator=generator)
    jumps = torch.randint(0, items, (users, length), generator=generator)
    moves = torch.where(torch.rand(users, length, generator=generator) < 0.05, jumps, moves)
    return (start + moves.cumsum(dim=1)) % items


class SASRec(nn.Module):
    def __init__(self, items, length, dim=64, heads=2, depth=2):
        super().__init__()
        self.items = nn.Embedding(items, dim, sparse=True)
        nn.init.normal_(self.items.weight, std=0.05)
        self.positions = nn.Parameter(0.05 * torch.randn(length, dim))
        self.heads = heads
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(dim),
                    "qkv": nn.Linear(dim, 3 * dim),
                    "out": nn.Linear(dim, dim),
                    "norm2": nn.LayerNorm(dim),
                    "mlp": nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)),
                }
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)

    def encode(self, sessions):
        x = self.items(sessions) + self.positions[: sessions.shape[1]]
        b, n, d = x.shape
        for block in self.blocks:
            qkv = block["qkv"](block["norm1"](x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(*qkv.unbind(0), is_causal=True)
            x = x + block["out"](attended.transpose(1, 2).reshape(b, n, d))
            x = x + block["mlp"](block["norm2"](x))
        return self.norm(x)

    def forward(self, sessions, candidates):
        """Scores of the candidates of each position: [batch, position, candidate]."""
        return (self.encode(sessions)[:, :, None] * self.items(candidates)).sum(dim=-1)


@torch.inference_mode()
def hit_rate(model, sessions, k=10):
    state = model.encode(sessions[:, :-1])[:, -1]
    top = (state @ model.items.weight.t()).topk(k, dim=1).indices
    return (top == sessions[:, -1:]).any(dim=1).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=4000)
    parser.add_argument("--items", type=int, default=20000)
    parser.add_argument("--maxlen", type=int, default=50)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    torch.manual_seed(60)
    sessions = make_sessions(args.users, args.items, args.maxlen + 1, seed=61)
    train, held = sessions[:-400], sessions[-400:]
    model = SASRec(args.items, args.maxlen)
    dense = [value for name, value in model.named_parameters() if name != "items.weight"]
    optimizers = [
        torch.optim.SparseAdam([model.items.weight], lr=args.lr),
        torch.optim.AdamW(dense, lr=args.lr, fused=True),
    ]
    for epoch in range(args.epochs):
        total = torch.zeros(())
        batches = torch.randperm(len(train)).split(args.batch_size)
        for rows in batches:
            batch = train[rows]
            inputs, wanted = batch[:, :-1], batch[:, 1:, None]
            candidates = torch.cat((wanted, torch.randint_like(wanted, args.items)), dim=2)
            positive, negative = model(inputs, candidates).unbind(dim=2)
            loss = F.softplus(-positive).mean() + F.softplus(negative).mean()
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(batches):.4f} hit@10 {hit_rate(model, held):.3f}")


if __name__ == "__main__":
    main()
