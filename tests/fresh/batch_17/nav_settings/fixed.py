"""Robots learn to reach a goal by advantage actor critic; all settings come from one file."""

import torch
import torch.nn.functional as F
from config import Config
from torch import nn
from world import World

SETTINGS = """
robot = {radius = 0.3, speed = 0.15, turn = 0.4}
task = {size = 8.0, obstacles = 6, radius = "${robot.radius}", limit = 80}
sensor = {beams = 10, angle = 3.0, reach = 4.0}
reward = {progress = 2.0, slack = 0.01, collision = 1.0, near = "${robot.radius}"}
policy = {inputs = 13, actions = 3, hidden = 256, memory = 256}
train = {worlds = 12, rollout = 16, updates = 120, gamma = 0.97, entropy = 0.01, lr = 1.0e-3, clip = 0.5}
"""


class Navigator(nn.Module):
    """A recurrent policy and its value."""

    def __init__(self, config):
        super().__init__()
        self.see = nn.Sequential(nn.Linear(config.inputs, config.hidden), nn.ReLU())
        self.memory = nn.GRUCell(config.hidden, config.memory)
        self.act, self.value = nn.Linear(config.memory, config.actions), nn.Linear(config.memory, 1)

    def forward(self, observation, state):
        state = self.memory(self.see(observation), state)
        return self.act(state), self.value(state).squeeze(-1), state


def rollout(model, worlds, observations, state, length):
    """Steps all worlds; what the policy said keeps its graph for the update."""
    said, rewards, ends = [], [], []
    for _ in range(length):
        logits, values, state = model(torch.tensor(observations), state)
        log_probs = F.log_softmax(logits, -1)
        actions = torch.multinomial(log_probs.detach().exp(), 1)
        taken = [world.step(action) for world, action in zip(worlds, actions.squeeze(1).tolist())]
        observations, reward, done = map(list, zip(*taken))
        done = torch.tensor(done)
        said.append((log_probs.gather(1, actions).squeeze(1), values, -(log_probs.exp() * log_probs).sum(1)))
        rewards.append(torch.tensor(reward))
        ends.append(done)
        state = state * ~done[:, None]
    return said, rewards, ends, observations, state


def actor_critic_loss(said, rewards, ends, final, config):
    log_probs, values, entropy = map(torch.stack, zip(*said))
    returns = []
    for reward, end in zip(reversed(rewards), reversed(ends)):
        final = reward + config.gamma * final * ~end
        returns.append(final)
    advantage = torch.stack(returns[::-1]) - values
    return -(advantage.detach() * log_probs).mean() + advantage.pow(2).mean() - config.entropy * entropy.mean()


def main():
    torch.manual_seed(0)
    config = Config.load(SETTINGS).plain()
    worlds = [World(config, seed) for seed in range(config.train.worlds)]
    model = Navigator(config.policy)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.train.lr)
    observations = [world.observe() for world in worlds]
    state = torch.zeros(len(worlds), config.policy.memory)
    for update in range(config.train.updates):
        said, rewards, ends, observations, state = rollout(model, worlds, observations, state, config.train.rollout)
        with torch.no_grad():
            final = model(torch.tensor(observations), state)[1]
        loss = actor_critic_loss(said, rewards, ends, final, config.train)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.train.clip)
        optimizer.step()
        state = state.detach()
        if update % 25 == 0:
            print(f"update {update}: reward {torch.stack(rewards).mean():.3f}")


if __name__ == "__main__":
    main()
