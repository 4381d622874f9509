"""TD3 with behaviour cloning on a fixed set of transitions."""

import argparse
import copy
import logging
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

logger = logging.getLogger("td3_bc")


@dataclass
class Config:
    state_dim: int = 17
    action_dim: int = 6
    hidden: int = 256
    gamma: float = 0.99
    tau: float = 0.005
    noise: float = 0.2
    clip: float = 0.5
    delay: int = 2
    alpha: float = 2.5
    lr: float = 3e-4


class Actor(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(cfg.state_dim, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.action_dim),
            nn.Tanh(),
        )

    def forward(self, state):
        return self.net(state)


class Critic(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.q1, self.q2 = self.head(cfg), self.head(cfg)

    def head(self, cfg):
        return nn.Sequential(
            nn.Linear(cfg.state_dim + cfg.action_dim, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, 1),
        )

    def forward(self, state, action):
        x = torch.cat([state, action], dim=1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


class Transitions:
    """Linear dynamics under a noisy controller; the reward prefers small states and actions."""

    def __init__(self, cfg, count, seed):
        self.generator = torch.Generator().manual_seed(seed)
        drift = 0.2 * torch.randn(cfg.state_dim, cfg.state_dim, generator=self.generator)
        push = 0.3 * torch.randn(cfg.action_dim, cfg.state_dim, generator=self.generator)
        self.state = torch.randn(count, cfg.state_dim, generator=self.generator)
        jitter = 0.3 * torch.randn(count, cfg.action_dim, generator=self.generator)
        self.action = torch.tanh(-self.state @ push.T + jitter)
        self.next_state = self.state @ drift + self.action @ push
        self.reward = -self.next_state.square().mean(dim=1) - 0.1 * self.action.square().mean(dim=1)

    def sample(self, size):
        rows = torch.randint(0, len(self.state), (size,), generator=self.generator)
        return self.state[rows], self.action[rows], self.next_state[rows], self.reward[rows]


class TD3BC:
    def __init__(self, cfg):
        self.cfg, self.updates = cfg, 0
        self.actor, self.critic = Actor(cfg), Critic(cfg)
        self.actor_target, self.critic_target = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=cfg.lr, fused=True)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=cfg.lr, fused=True)

    @torch.no_grad()
    def target(self, next_state, reward):
        action = self.actor_target(next_state)
        noise = (torch.randn_like(action) * self.cfg.noise).clamp(-self.cfg.clip, self.cfg.clip)
        q1, q2 = self.critic_target(next_state, (action + noise).clamp(-1, 1))
        return reward + self.cfg.gamma * torch.minimum(q1, q2)

    @torch.no_grad()
    def follow(self, net, target):
        torch._foreach_lerp_(list(target.parameters()), list(net.parameters()), self.cfg.tau)

    def update(self, state, action, next_state, reward):
        self.updates += 1
        target_q = self.target(next_state, reward)
        q1, q2 = self.critic(state, action)
        critic_loss = F.mse_loss(q1, target_q) + F.mse_loss(q2, target_q)
        logger.debug("update %d: q1 %s, q2 %s, target %s", self.updates, q1.detach(), q2.detach(), target_q)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        if self.updates % self.cfg.delay == 0:
            self.update_actor(state, action)
        return critic_loss.detach()

    def update_actor(self, state, action):
        self.critic.requires_grad_(False)
        chosen = self.actor(state)
        q, _ = self.critic(state, chosen)
        loss = -self.cfg.alpha * q.mean() / q.detach().abs().mean() + F.mse_loss(chosen, action)
        self.actor_optimizer.zero_grad()
        loss.backward()
        self.actor_optimizer.step()
        self.critic.requires_grad_(True)
        self.follow(self.actor, self.actor_target)
        self.follow(self.critic, self.critic_target)


def main(args):
    logging.basicConfig(level=args.log_level.upper(), format="%(name)s %(message)s")
    torch.manual_seed(530)
    cfg = Config()
    data, agent = Transitions(cfg, 50_000, 531), TD3BC(cfg)
    for step in range(1, args.steps + 1):
        loss = agent.update(*data.sample(args.batch_size))
        if step % 150 == 0:
            logger.info("step %d: critic loss %.5f", step, loss.item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=384)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--log-level", default="info")
    main(parser.parse_args())
