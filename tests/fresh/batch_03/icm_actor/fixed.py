"""Advantage actor-critic with curiosity: an intrinsic reward from how badly the next features are predicted."""

import torch
from torch import nn
from torch.nn import functional as F

ACTIONS, SIZE, ENVS, ROLLOUT = 4, 20, 16, 8


class Maze:
    """A dot on a torus of noise; it sees the surroundings as a picture. There is a reward in one corner."""

    def __init__(self, generator):
        self.world = torch.rand(SIZE * 2, SIZE * 2, generator=generator)
        self.place = torch.randint(0, SIZE * 2, (ENVS, 2), generator=generator)
        self.offsets = torch.arange(SIZE) - SIZE // 2
        self.moves = torch.tensor([[0, 1], [1, 0], [0, -1], [-1, 0]])

    def observe(self):
        rows = (self.place[:, 0, None] + self.offsets) % (2 * SIZE)
        columns = (self.place[:, 1, None] + self.offsets) % (2 * SIZE)
        return self.world[rows[:, :, None], columns[:, None, :]].unsqueeze(1)

    def step(self, action):
        self.place = (self.place + self.moves[action]) % (2 * SIZE)
        return self.observe(), (self.place < 3).all(dim=1).float()


class ActorCriticICM(nn.Module):
    def __init__(self, features=64):
        super().__init__()
        self.head = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1),
            nn.ELU(),
            nn.Conv2d(16, 24, 3, 2, 1),
            nn.ELU(),
            nn.Flatten(),
            nn.Linear(24 * 25, features),
            nn.ELU(),
        )
        self.actor, self.critic = nn.Linear(features, ACTIONS), nn.Linear(features, 1)
        self.inverse = nn.Sequential(nn.Linear(2 * features, 64), nn.ReLU(), nn.Linear(64, ACTIONS))
        self.forward_model = nn.Sequential(nn.Linear(features + ACTIONS, 64), nn.ReLU(), nn.Linear(64, features))

    def policy(self, phi):
        return self.actor(phi), self.critic(phi).squeeze(-1)

    def curiosity(self, phi, following, action):
        """Errors of the inverse and of the forward model."""
        guess = self.inverse(torch.cat([phi, following], dim=-1))
        predicted = self.forward_model(torch.cat([phi, F.one_hot(action, ACTIONS).float()], dim=-1))
        inverse = F.cross_entropy(guess.flatten(0, 1), action.flatten(), reduction="none").view_as(action)
        return inverse, 0.5 * (predicted - following).square().mean(dim=-1)


def a3c_loss(logits, values, actions, rewards, bootstrap):
    returns, running = torch.empty_like(rewards), bootstrap
    for t in reversed(range(len(rewards))):
        running = rewards[t] + 0.97 * running
        returns[t] = running
    advantage = returns - values
    log_probs = logits.log_softmax(dim=-1)
    chosen = log_probs.gather(-1, actions[..., None]).squeeze(-1)
    entropy = -(log_probs.exp() * log_probs).sum(dim=-1)
    return (-chosen * advantage.detach() + 0.5 * advantage.square() - 0.01 * entropy).mean()


def train(updates=200):
    torch.manual_seed(90)
    maze, model = Maze(torch.Generator().manual_seed(91)), ActorCriticICM()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, fused=True)
    state = maze.observe()
    for update in range(1, updates + 1):
        states, actions, rewards = [state], [], []
        with torch.no_grad():
            for _ in range(ROLLOUT):
                logits = model.actor(model.head(state))
                action = torch.distributions.Categorical(logits=logits).sample()
                state, reward = maze.step(action)
                states.append(state)
                actions.append(action)
                rewards.append(reward)
        actions, rewards = torch.stack(actions), torch.stack(rewards)
        phi = model.head(torch.cat(states)).view(ROLLOUT + 1, ENVS, -1)
        logits, values = model.policy(phi)
        inverse, forward = model.curiosity(phi[:-1], phi[1:], actions)
        rewards = rewards + 0.2 * forward.detach()
        policy_loss = a3c_loss(logits[:-1], values[:-1], actions, rewards, values[-1].detach())
        icm_loss = 0.8 * inverse.mean() + 0.2 * forward.mean()
        optimizer.zero_grad()
        (policy_loss + icm_loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 40.0)
        optimizer.step()
        if update % 40 == 0:
            print(f"{update}: policy {policy_loss.item():.4f} curiosity {icm_loss.item():.4f}")


if __name__ == "__main__":
    train()
