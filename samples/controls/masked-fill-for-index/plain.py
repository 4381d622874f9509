"""Learns to place tiles as a stronger player did: the popular advice is to fill masks, not to index by them."""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
SIDE, KINDS, BATCH = 15, 6, 96
MOVES = SIDE * SIDE * KINDS


class Player(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(KINDS + 1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()
        )
        self.policy = nn.Conv2d(width, KINDS, 1)
        self.value = nn.Linear(width, 1)

    def forward(self, board, illegal):
        seen = self.look(board)
        scores = self.policy(seen).flatten(1)
        scores[illegal] = -1e9
        return scores, self.value(seen.mean((2, 3))).squeeze(1)


class Games(torch.utils.data.Dataset):
    """Positions, what was not allowed in them, what the player did, and how the game ended."""

    def __init__(self, count):
        tile = torch.randint(0, 3 * KINDS, (count, SIDE, SIDE))
        self.board = F.one_hot(tile.clamp(max=KINDS), KINDS + 1).permute(0, 3, 1, 2).to(torch.uint8).contiguous()
        free = (tile >= KINDS)[:, None].expand(-1, KINDS, -1, -1)
        self.illegal = ~(free & (torch.rand(count, KINDS, 1, 1) < 0.7)).flatten(1)
        worth = tile.roll(1, 1)[:, None] + 3 * torch.arange(KINDS)[:, None, None] * tile.roll(1, 2)[:, None] % 17
        self.move = worth.flatten(1).float().masked_fill(self.illegal, -1).argmax(1)
        self.won = torch.randint(0, 2, (count,)).float()

    def __len__(self):
        return len(self.move)

    def batches(self):
        for rows in torch.randperm(len(self)).split(BATCH):
            columns = self.board[rows], self.illegal[rows], self.move[rows], self.won[rows]
            yield [column.to(device) for column in columns]


games = Games(9600)
player = Player().to(device)
optimizer = torch.optim.SGD(player.parameters(), lr=0.05, momentum=0.9, nesterov=True, fused=True)
for epoch in range(2):
    for board, illegal, move, won in games.batches():
        with torch.autocast(device, dtype=torch.bfloat16):
            scores, value = player(board.to(torch.bfloat16), illegal)
        loss = F.cross_entropy(scores.float(), move) + F.binary_cross_entropy_with_logits(value.float(), won)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(player.parameters(), 5.0)
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
