"""PPO on 64 pendulums that are simulated together; the rollout is written into tensors that are made once."""

import math

import torch
from torch import nn
from torch.distributions import Normal

ENVS, HORIZON, UPDATES, EPOCHS, MINIBATCHES = 64, 48, 16, 4, 4
GAMMA, LAMBDA, CLIP = 0.97, 0.95, 0.2


class Pendulums:
    def __init__(self, count):
        self.angle, self.speed = torch.empty(count), torch.empty(count)
        self.reset(torch.ones(count, dtype=torch.bool))

    def reset(self, where):
        self.angle = torch.where(where, math.pi + 0.5 * torch.randn_like(self.angle), self.angle)
        self.speed = torch.where(where, torch.zeros_like(self.speed), self.speed)

    def observe(self):
        return torch.stack([self.angle.cos(), self.angle.sin(), self.speed / 8], dim=1)

    def step(self, torque):
        torque = 3 * torque.squeeze(1).clamp(-1, 1)
        error = torch.remainder(self.angle + math.pi, 2 * math.pi) - math.pi
        reward = -(error.square() + 0.1 * self.speed.square() + 0.001 * torque.square())
        self.speed = (self.speed + 0.05 * (15 * self.angle.sin() + 3 * torque)).clamp(-8, 8)
        self.angle = self.angle + 0.05 * self.speed
        return self.observe(), reward / 16


class ActorCritic(nn.Module):
    def __init__(self, hidden=512):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )
        self.critic = nn.Sequential(
            nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )
        self.log_std = nn.Parameter(torch.full((1,), -0.5))

    def policy(self, state):
        return Normal(self.actor(state), self.log_std.exp(), validate_args=False)

    def forward(self, state):
        return self.policy(state), self.critic(state).squeeze(1)


def advantages(rewards, values, last):
    result, running = torch.empty_like(rewards), torch.zeros_like(last)
    following = last
    for t in range(len(rewards) - 1, -1, -1):
        running = rewards[t] + GAMMA * following - values[t] + GAMMA * LAMBDA * running
        result[t] = running
        following = values[t]
    return result


def main():
    torch.manual_seed(25)
    env, model = Pendulums(ENVS), ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    states, actions = torch.empty(HORIZON, ENVS, 3), torch.empty(HORIZON, ENVS, 1)
    logprobs, rewards = torch.empty(HORIZON, ENVS), torch.empty(HORIZON, ENVS)
    state = env.observe()
    for update in range(UPDATES):
        with torch.no_grad():
            for t in range(HORIZON):
                policy = model.policy(state)
                action = policy.sample()
                states[t], actions[t] = state, action
                logprobs[t] = policy.log_prob(action).sum(dim=1)
                state, rewards[t] = env.step(action)
            values = model.critic(states).squeeze(2)
            gain = advantages(rewards, values, model.critic(state).squeeze(1)).flatten()
            wanted = gain + values.flatten()
            gain = (gain - gain.mean()) / gain.std()
            if update % 4 == 3:
                env.reset(torch.rand(ENVS) < 0.5)
                state = env.observe()
        flat = states.flatten(0, 1), actions.flatten(0, 1), logprobs.flatten()
        for _ in range(EPOCHS):
            for rows in torch.randperm(HORIZON * ENVS).chunk(MINIBATCHES):
                policy, value = model(flat[0][rows])
                ratio = (policy.log_prob(flat[1][rows]).sum(dim=1) - flat[2][rows]).exp()
                clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                policy_loss = -torch.min(ratio * gain[rows], clipped * gain[rows]).mean()
                loss = policy_loss + 0.5 * (value - wanted[rows]).square().mean() - 0.001 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
        if update % 4 == 3:
            print(f"update {update}: mean reward {rewards.mean().item():.4f} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
