"""MuZero-style training on a small grid game, from a buffer of played games with priorities."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Settings:
    seed = 42
    observation = (3, 8, 8)
    actions = 4
    games = 2500
    batch_size = 128
    unroll = 4
    td_steps = 8
    discount = 0.97
    hidden = 96
    training_steps = 320
    lr = 2e-3


class GameHistory:
    def __init__(self, observations, actions, rewards, policies, values):
        self.observations = observations
        self.actions = actions
        self.rewards = rewards
        self.policies = policies
        self.root_values = values
        self.priorities = np.abs(values - rewards) + 0.01
        self.game_priority = self.priorities.max()


def play(rng, settings):
    """A random walk towards a goal. The 'search' is a noisy preference for the right direction."""
    size = settings.observation[1]
    goal, here = rng.integers(0, size, 2), rng.integers(0, size, 2)
    moves = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])
    observations, actions, rewards, policies, values = [], [], [], [], []
    for _ in range(rng.integers(12, 40)):
        board = np.zeros(settings.observation, dtype=np.float32)
        board[0, here[0], here[1]] = board[1, goal[0], goal[1]] = 1
        board[2] = len(actions) / 40
        gains = -np.abs(np.clip(here + moves, 0, size - 1) - goal).sum(1) + rng.normal(size=4) * 0.3
        policy = np.exp(2 * (gains - gains.max()))
        policy /= policy.sum()
        action = rng.choice(4, p=policy)
        here = np.clip(here + moves[action], 0, size - 1)
        observations.append(board)
        actions.append(action)
        policies.append(policy)
        rewards.append(1.0 if (here == goal).all() else -0.02)
        values.append(-np.abs(here - goal).sum() / size)
    return GameHistory(
        np.stack(observations), np.array(actions), np.array(rewards), np.stack(policies), np.array(values)
    )


class ReplayBuffer:
    def __init__(self, games, settings):
        self.games = dict(enumerate(games))
        self.settings = settings

    def get_batch(self):
        boards, actions, targets = [], [], []
        for _, history, _ in self.sample_n_games(self.settings.batch_size):
            position = self.sample_position(history)
            value, reward, policy, chosen = self.make_target(history, position)
            boards.append(history.observations[position])
            actions.append(chosen)
            targets.append((value, reward, policy))
        values, rewards, policies = (np.stack(part) for part in zip(*targets))
        return (
            torch.from_numpy(np.stack(boards)),
            torch.from_numpy(np.stack(actions)),
            torch.from_numpy(values).float(),
            torch.from_numpy(rewards).float(),
            torch.from_numpy(policies).float(),
        )

    def sample_n_games(self, count):
        priorities = np.array([history.game_priority for history in self.games.values()])
        probabilities = priorities / priorities.sum()
        chosen = np.random.choice(len(self.games), count, p=probabilities)
        return [(index, self.games[index], probabilities[index]) for index in chosen.tolist()]

    def sample_position(self, history):
        weights = history.priorities / history.priorities.sum()
        return np.random.choice(len(weights), p=weights)

    def make_target(self, history, position):
        s, length = self.settings, len(history.actions)
        values, rewards, policies, actions = [], [], [], []
        for index in range(position, position + s.unroll + 1):
            end = min(index + s.td_steps, length)
            discounts = s.discount ** np.arange(max(end - index, 0))
            value = (history.rewards[index:end] * discounts).sum()
            if end < length:
                value += history.root_values[end] * s.discount**s.td_steps
            inside = index < length
            values.append(value)
            rewards.append(history.rewards[index] if inside else 0.0)
            policies.append(history.policies[index] if inside else np.full(s.actions, 1 / s.actions))
            actions.append(history.actions[index] if inside else np.random.randint(s.actions))
        return np.array(values), np.array(rewards), np.stack(policies), np.array(actions)


class MuZeroNet(nn.Module):
    def __init__(self, settings):
        super().__init__()
        planes, width = settings.observation[0], settings.hidden
        self.actions = settings.actions
        self.represent = nn.Sequential(
            nn.Conv2d(planes, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 64, width),
            nn.Tanh(),
        )
        self.dynamics = nn.Sequential(nn.Linear(width + self.actions, width), nn.ReLU(), nn.Linear(width, width + 1))
        self.predict = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, self.actions + 1))

    def initial(self, board):
        state = self.represent(board)
        out = self.predict(state)
        return state, out[:, : self.actions], out[:, -1]

    def recurrent(self, state, action):
        joined = torch.cat([state, F.one_hot(action, self.actions).float()], dim=1)
        out = self.dynamics(joined)
        state = torch.tanh(out[:, :-1])
        heads = self.predict(state)
        return state, out[:, -1], heads[:, : self.actions], heads[:, -1]


def update(model, optimizer, batch):
    boards, actions, values, rewards, policies = batch
    state, logits, value = model.initial(boards)
    loss = F.cross_entropy(logits, policies[:, 0]) + 0.25 * F.mse_loss(value, values[:, 0])
    for k in range(1, values.size(1)):
        state, reward, logits, value = model.recurrent(state, actions[:, k - 1])
        loss = loss + F.cross_entropy(logits, policies[:, k]) + 0.25 * F.mse_loss(value, values[:, k])
        loss = loss + F.mse_loss(reward, rewards[:, k - 1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    settings = Settings()
    np.random.seed(settings.seed)
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng(settings.seed)
    buffer = ReplayBuffer([play(rng, settings) for _ in range(settings.games)], settings)
    model = MuZeroNet(settings)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr, weight_decay=1e-4)
    total = torch.zeros(())
    for step in range(1, settings.training_steps + 1):
        total += update(model, optimizer, buffer.get_batch())
        if step % 40 == 0:
            print(f"training step {step} loss {total.item() / 40:.3f}")
            total.zero_()


if __name__ == "__main__":
    main()
