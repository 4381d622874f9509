"""A policy for a small board game learned from played games: a transformer over squares, on two ranks."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def positions(count, board, seed):
    """Random positions (0 empty, 1 to 4 pieces) and the move of a simple rule: to the most crowded empty one."""
    g = torch.Generator().manual_seed(seed)
    pieces = torch.randint(1, 5, (count, board, board), generator=g)
    squares = pieces * (torch.rand(count, board, board, generator=g) < 0.45)
    values = torch.tensor([0.0, 1.0, 3.0, 3.0, 5.0])[squares]
    kernel = torch.ones(1, 1, 3, 3)
    crowd = F.conv2d(values[:, None], kernel, padding=1)[:, 0] + 0.01 * torch.rand(count, board, board, generator=g)
    move = crowd.masked_fill(squares > 0, -1).flatten(1).argmax(1)
    return squares.flatten(1), move


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Policy(nn.Module):
    def __init__(self, board, width=64, heads=4, layers=8):
        super().__init__()
        self.piece = nn.Embedding(5, width)
        self.place = nn.Parameter(0.02 * torch.randn(board * board, width))
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, squares):
        return self.out(self.layers(self.piece(squares) + self.place)).squeeze(-1)


def clip_gradients(model, limit):
    """Scales the gradients down where their norm, the same on all ranks, exceeds the limit."""
    return nn.utils.clip_grad_norm_(model.parameters(), limit)


class Learner:
    def __init__(self, args):
        self.args = args
        self.model = DistributedDataParallel(Policy(args.board))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, fused=True)
        self.warmup = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, total_iters=20)

    def learn(self, squares, move):
        logits = self.model(squares)
        loss = F.cross_entropy(logits.masked_fill(squares > 0, -1e4), move)
        self.optimizer.zero_grad()
        loss.backward()
        norm = clip_gradients(self.model, self.args.clip)
        self.optimizer.step()
        self.warmup.step()
        return torch.stack([loss.detach(), norm])

    def run(self, data):
        rank, world = dist.get_rank(), dist.get_world_size()
        for epoch in range(self.args.epochs):
            order = torch.randperm(len(data[0]), generator=torch.Generator().manual_seed(epoch))
            own = order[rank::world].split(self.args.batch_size)
            loss, norm = torch.stack([self.learn(*(part[index] for part in data)) for index in own]).mean(0).tolist()
            if rank == 0:
                print(f"epoch {epoch}: loss {loss:.4f} gradient norm {norm:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--positions", type=int, default=6400)
    parser.add_argument("--board", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    Learner(args).run(positions(args.positions, args.board, seed=21))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
