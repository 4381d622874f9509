"""PPO for a crane that swings cargo over a quay: many cranes in one batch of tensors, advantages, clipped updates."""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.distributions import Normal


class Cranes:
    """A trolley with a hanging load for each row; all move at once."""

    obs_size, act_size = 6, 1

    def __init__(self, count, limit=200):
        self.count, self.limit = count, limit
        self.state = torch.zeros(count, 4)
        self.goal = torch.zeros(count)
        self.age = torch.zeros(count, dtype=torch.long)
        self.restart(torch.ones(count, dtype=torch.bool))

    def restart(self, rows):
        fresh = 0.1 * torch.randn(self.count, 4)
        self.state = torch.where(rows[:, None], fresh, self.state)
        self.goal = torch.where(rows, torch.rand(self.count) * 4 - 2, self.goal)
        self.age = torch.where(rows, 0, self.age)

    def observe(self):
        x, v, angle, spin = self.state.unbind(1)
        return torch.stack([self.goal - x, x / 3, v, angle.sin(), angle.cos(), spin], dim=1)

    def step(self, action, dt=0.04):
        x, v, angle, spin = self.state.unbind(1)
        push = action.squeeze(1).clamp(-3, 3)
        spin = spin + dt * (-9.81 * angle.sin() - push * angle.cos() - 0.1 * spin)
        v = 0.99 * v + dt * push
        self.state = torch.stack([x + dt * v, v, angle + dt * spin, spin], dim=1)
        self.age = self.age + 1
        reward = -(self.goal - x).abs() - 0.5 * angle.square() - 0.01 * push.square()
        lost = x.abs() > 4
        done = lost | (self.age >= self.limit)
        reward = reward - 10.0 * lost
        self.restart(done)
        return self.observe(), reward, done


class Policy(nn.Module):
    def __init__(self, obs_size, act_size, hidden=128):
        super().__init__()
        self.actor = self.mlp(obs_size, hidden, act_size)
        self.critic = self.mlp(obs_size, hidden, 1)
        self.log_std = nn.Parameter(torch.zeros(act_size))

    @staticmethod
    def mlp(n_in, hidden, n_out):
        return nn.Sequential(
            nn.Linear(n_in, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, n_out)
        )

    def dist(self, obs):
        return Normal(self.actor(obs), self.log_std.exp(), validate_args=False)

    def value(self, obs):
        return self.critic(obs).squeeze(1)


class Rollout:
    """Buffers that are made once and filled in each round."""

    def __init__(self, horizon, count, obs_size, act_size):
        self.obs = torch.empty(horizon, count, obs_size)
        self.actions = torch.empty(horizon, count, act_size)
        self.logp, self.rewards, self.values = (torch.empty(horizon, count) for _ in range(3))
        self.dones = torch.empty(horizon, count)
        self.horizon = horizon

    @torch.no_grad()
    def collect(self, env, policy, obs):
        for t in range(self.horizon):
            dist = policy.dist(obs)
            action = dist.sample()
            self.obs[t], self.actions[t] = obs, action
            self.logp[t], self.values[t] = dist.log_prob(action).sum(1), policy.value(obs)
            obs, self.rewards[t], self.dones[t] = env.step(action)
        return obs, policy.value(obs)

    def advantages(self, last, gamma, lam):
        result = torch.empty_like(self.rewards)
        carried, following = torch.zeros_like(last), last
        for t in reversed(range(self.horizon)):
            alive = 1.0 - self.dones[t]
            delta = self.rewards[t] + gamma * following * alive - self.values[t]
            carried = delta + gamma * lam * alive * carried
            result[t], following = carried, self.values[t]
        return result


def update(policy, optimizer, rollout, advantage, args):
    returns = (advantage + rollout.values).flatten()
    advantage = advantage.flatten()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    obs, actions, logp = rollout.obs.flatten(0, 1), rollout.actions.flatten(0, 1), rollout.logp.flatten()
    total, count = torch.zeros(()), 0
    for _ in range(args.epochs):
        for rows in torch.randperm(len(obs)).split(args.minibatch):
            dist = policy.dist(obs[rows])
            ratio = (dist.log_prob(actions[rows]).sum(1) - logp[rows]).exp()
            gain = advantage[rows]
            clipped = torch.min(ratio * gain, ratio.clamp(1 - args.clip, 1 + args.clip) * gain)
            value_loss = (policy.value(obs[rows]) - returns[rows]).square().mean()
            loss = -clipped.mean() + 0.5 * value_loss - 0.001 * dist.entropy().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5, foreach=True)
            optimizer.step()
            total += loss.detach()
            count += 1
    return total.item() / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cranes", type=int, default=256)
    parser.add_argument("--horizon", type=int, default=32)
    parser.add_argument("--minibatch", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(3)
    env = Cranes(args.cranes)
    policy = Policy(env.obs_size, env.act_size)
    optimizer = torch.optim.Adam(policy.parameters(), lr=args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=args.rounds)
    rollout = Rollout(args.horizon, args.cranes, env.obs_size, env.act_size)
    obs = env.observe()
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(args.rounds):
            obs, last = rollout.collect(env, policy, obs)
            loss = update(policy, optimizer, rollout, rollout.advantages(last, gamma=0.99, lam=0.95), args)
            schedule.step()
            if (round_ + 1) % 10 == 0:
                reward = rollout.rewards.mean().item()
                print(f"round {round_ + 1}: loss {loss:.3f}, reward for a step {reward:.3f}")
                torch.save(policy.state_dict(), os.path.join(folder, "policy.pt"))


if __name__ == "__main__":
    main()
