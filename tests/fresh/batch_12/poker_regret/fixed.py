"""Deep counterfactual regret minimisation for a small poker game (three suits, hands of two cards and one shared)."""

import copy
import itertools
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

RANKS, SUITS = 4, 2
DECK = [(rank, suit) for rank in range(RANKS) for suit in range(SUITS)]
ACTIONS = ("fold", "call", "raise")


class Evaluator:
    """Looks the strength of three cards up in a table."""

    def __init__(self):
        self.table = {}
        for cards in itertools.combinations(DECK, 3):
            ranks = sorted((rank for rank, _ in cards), reverse=True)
            pairs = sum(a == b for a, b in itertools.combinations(ranks, 2))
            straight = ranks[0] - ranks[1] == ranks[1] - ranks[2] == 1
            self.table[cards] = 1000 * pairs + 500 * straight + 36 * ranks[0] + 6 * ranks[1] + ranks[2]

    def strength(self, hand, board):
        return self.table[tuple(sorted([*hand, *board]))]


EVALUATOR = Evaluator()


class PokerEngine:
    """Cards, bets and whose turn it is. Two rounds of betting with at most two raises each."""

    def __init__(self, rng):
        cards = rng.sample(DECK, 5)
        self.hands = [cards[:2], cards[2:4]]
        self.hidden = cards[4:]
        self.board = []
        self.bets = [1, 1]
        self.player, self.raises, self.round, self.history = 0, 0, 0, []
        self.winner = None

    def legal(self):
        allowed = [self.bets[self.player] < self.bets[1 - self.player], True, self.raises < 2]
        return np.array(allowed)

    def apply_action(self, action):
        name = ACTIONS[action]
        self.history.append(action)
        if name == "fold":
            self.winner = 1 - self.player
        elif name == "raise":
            self.bets[self.player] = self.bets[1 - self.player] + 2
            self.raises += 1
            self.player = 1 - self.player
        else:
            closed = self.bets[self.player] < self.bets[1 - self.player] or (self.history[-2:] == [1, 1])
            self.bets[self.player] = self.bets[1 - self.player]
            self.player = 1 - self.player
            if closed:
                self.next_round()

    def next_round(self):
        self.history.append(3)
        self.raises, self.player = 0, 0
        if self.round == 0:
            self.round, self.board = 1, self.hidden
            return
        first, second = (EVALUATOR.strength(hand, self.board) for hand in self.hands)
        self.winner = 0 if first > second else 1 if second > first else 2

    def payoff(self, player):
        if self.winner == 2:
            return 0.0
        return float(self.bets[1 - player] if self.winner == player else -self.bets[player])


class PokerState:
    def __init__(self, engine):
        self.engine = engine

    def apply(self, action):
        following = copy.deepcopy(self)
        following.engine.apply_action(action)
        return following

    def features(self):
        e = self.engine
        x = np.zeros(2 * len(DECK) + 4 * 12 + 3, dtype=np.float32)
        for rank, suit in e.hands[e.player]:
            x[rank * SUITS + suit] = 1
        for rank, suit in e.board:
            x[len(DECK) + rank * SUITS + suit] = 1
        for place, action in enumerate(e.history[-12:]):
            x[2 * len(DECK) + 4 * place + action] = 1
        x[-3:] = e.bets[0] / 10, e.bets[1] / 10, e.player
        return x


class RegretNet(nn.Module):
    def __init__(self, inputs, width=256):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, len(ACTIONS))
        )

    def forward(self, x):
        return self.body(x)


def strategy(net, features, legal):
    with torch.no_grad():
        regrets = net(torch.from_numpy(features)).numpy()
    positive = np.maximum(regrets, 0) * legal
    return positive / positive.sum() if positive.sum() > 1e-6 else legal / legal.sum()


class DeepCFR:
    def __init__(self, seed, memory=20000, batch=512):
        self.rng = random.Random(seed)
        inputs = len(PokerState(PokerEngine(self.rng)).features())
        self.nets = [RegretNet(inputs), RegretNet(inputs)]
        self.optimizers = [torch.optim.Adam(net.parameters(), lr=1e-3) for net in self.nets]
        self.memories = [deque(maxlen=memory), deque(maxlen=memory)]
        self.batch = batch

    def traverse(self, state, player):
        engine = state.engine
        if engine.winner is not None:
            return engine.payoff(player)
        features, legal = state.features(), engine.legal()
        policy = strategy(self.nets[engine.player], features, legal)
        if engine.player != player:
            return self.traverse(state.apply(self.rng.choices(range(3), policy)[0]), player)
        values = np.zeros(3, dtype=np.float32)
        for action in np.flatnonzero(legal):
            values[action] = self.traverse(state.apply(int(action)), player)
        regret = (values - policy @ values) * legal
        self.memories[player].append((features, regret.astype(np.float32), legal))
        return float(policy @ values)

    def learn(self, player):
        memory = self.memories[player]
        rows = self.rng.sample(memory, min(self.batch, len(memory)))
        x, regret, legal = (torch.from_numpy(np.stack(part)) for part in zip(*rows))
        loss = (F.mse_loss(self.nets[player](x), regret, reduction="none") * legal).sum(1).mean()
        self.optimizers[player].zero_grad()
        loss.backward()
        self.optimizers[player].step()
        return loss.detach()

    def iterate(self, games, updates):
        losses = []
        for player in (0, 1):
            for _ in range(games):
                self.traverse(PokerState(PokerEngine(self.rng)), player)
            losses += [self.learn(player) for _ in range(updates)]
        return torch.stack(losses).mean().item()


def main():
    torch.manual_seed(52)
    solver = DeepCFR(seed=52)
    for iteration in range(1, 201):
        loss = solver.iterate(games=3, updates=1)
        if iteration % 50 == 0:
            print(f"iteration {iteration} loss {loss:.3f} samples {len(solver.memories[0])}")


if __name__ == "__main__":
    main()
