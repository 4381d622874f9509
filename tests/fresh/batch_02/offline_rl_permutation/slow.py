"""TD3 with behaviour cloning on logged transitions."""

import argparse
import copy
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


class Traj:
    """Transitions of a noisy pendulum-like system, stored column by column."""

    def __init__(self, count, obs=24, act=6, seed=0):
        g = torch.Generator().manual_seed(seed)
        mix = torch.randn(obs + act, obs, generator=g) / (obs + act) ** 0.5
        self.obs = torch.randn(count, obs, generator=g)
        self.acts = torch.tanh(self.obs[:, :act] + 0.5 * torch.randn(count, act, generator=g))
        self.next_obs = torch.cat([self.obs, self.acts], 1) @ mix
        self.rews = -(self.obs[:, :act] - self.acts).pow(2).sum(1)
        self.dones = (torch.rand(count, generator=g) < 0.01).float()

    def random_batch(self, size):
        idx = torch.randperm(len(self.obs))[:size]
        return self.obs[idx], self.acts[idx], self.next_obs[idx], self.rews[idx], self.dones[idx]


def mlp(fan_in, fan_out, width=192):
    return nn.Sequential(
        nn.Linear(fan_in, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, fan_out)
    )


class Agent:
    def __init__(self, obs, act, args):
        self.args, self.total_it = args, 0
        self.actor, self.critics = mlp(obs, act), nn.ModuleList(mlp(obs + act, 1) for _ in range(2))
        self.actor_target, self.critics_target = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=3e-4)

    def train(self, traj):
        self.total_it += 1
        obs, acts, next_obs, rews, dones = traj.random_batch(self.args.batch_size)
        with torch.no_grad():
            noise = (torch.randn_like(acts) * 0.2).clamp(-0.5, 0.5)
            next_acts = (torch.tanh(self.actor_target(next_obs)) + noise).clamp(-1, 1)
            both = torch.cat([next_obs, next_acts], 1)
            target_q = torch.min(*(critic(both) for critic in self.critics_target)).squeeze(1)
            target_q = rews + (1 - dones) * self.args.discount * target_q
        both = torch.cat([obs, acts], 1)
        critic_loss = sum(F.mse_loss(critic(both).squeeze(1), target_q) for critic in self.critics)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        if self.total_it % self.args.policy_freq == 0:
            pi = torch.tanh(self.actor(obs))
            q = self.critics[0](torch.cat([obs, pi], 1))
            actor_loss = -self.args.alpha / q.abs().mean().detach() * q.mean() + F.mse_loss(pi, acts)
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
            with torch.no_grad():
                for net, target in ((self.actor, self.actor_target), (self.critics, self.critics_target)):
                    torch._foreach_lerp_(list(target.parameters()), list(net.parameters()), self.args.tau)
        return critic_loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--transitions", type=int, default=250_000)
    parser.add_argument("--max_timesteps", type=int, default=700)
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--discount", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=0.005)
    parser.add_argument("--policy_freq", type=int, default=2)
    parser.add_argument("--alpha", type=float, default=2.5)
    args = parser.parse_args()
    torch.manual_seed(0)
    traj = Traj(args.transitions)
    agent = Agent(traj.obs.shape[1], traj.acts.shape[1], args)
    for t in range(1, args.max_timesteps + 1):
        loss = agent.train(traj)
        if t % 100 == 0:
            print(f"Time steps: {t} critic loss {loss.item():.4f}")
    with tempfile.TemporaryDirectory() as models:
        torch.save(agent.actor.state_dict(), f"{models}/actor")


if __name__ == "__main__":
    main()
