"""Implicit Q-learning from a fixed set of transitions that lies in memory as tensors."""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F

STATE, ACTION = 29, 8


def mlp(inp, out, hidden=256):
    hidden_layers = [nn.Linear(inp, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(*hidden_layers, nn.Linear(hidden, out))


class TwinQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = mlp(STATE + ACTION, 1), mlp(STATE + ACTION, 1)

    def forward(self, state, action):
        x = torch.cat([state, action], dim=1)
        return self.one(x).squeeze(-1), self.two(x).squeeze(-1)


class GaussianPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = mlp(STATE, ACTION)
        self.log_std = nn.Parameter(torch.zeros(ACTION))

    def log_prob(self, state, action):
        log_std = self.log_std.clamp(-5, 2)
        z = (action - torch.tanh(self.mean(state))) * (-log_std).exp()
        return -(0.5 * z.square() + log_std).sum(dim=-1)


class Dataset:
    def __init__(self, count, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.state = torch.randn(count, STATE, generator=self.generator)
        self.action = torch.tanh(torch.randn(count, ACTION, generator=self.generator))
        push = 0.2 * torch.randn(ACTION, STATE, generator=self.generator)
        self.next_state = 0.95 * self.state + self.action @ push
        self.reward = (self.next_state[:, :2].norm(dim=1) < 0.5).float() - 1
        self.going_on = (self.reward < 0).float()

    def sample(self, size):
        rows = torch.randint(0, len(self.state), (size,), generator=self.generator)
        return self.state[rows], self.action[rows], self.next_state[rows], self.reward[rows], self.going_on[rows]


class IQL:
    def __init__(self, args):
        self.args = args
        self.q, self.v, self.policy = TwinQ(), mlp(STATE, 1), GaussianPolicy()
        self.q_target = copy.deepcopy(self.q).requires_grad_(False)
        self.followed = list(self.q.parameters()), list(self.q_target.parameters())
        parameters = [*self.q.parameters(), *self.v.parameters(), *self.policy.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=args.lr, fused=True)

    def losses(self, state, action, next_state, reward, going_on):
        with torch.no_grad():
            target_q = torch.minimum(*self.q_target(state, action))
            next_v = self.v(next_state).squeeze(-1)
            target = reward + self.args.gamma * going_on * next_v
        v = self.v(state).squeeze(-1)
        advantage = target_q - v
        weight = (self.args.expectile - (advantage.detach() < 0).float()).abs()
        v_loss = (weight * advantage.square()).mean()
        q1, q2 = self.q(state, action)
        q_loss = F.mse_loss(q1, target) + F.mse_loss(q2, target)
        keenness = (self.args.beta * advantage.detach()).exp().clamp(max=100)
        policy_loss = -(keenness * self.policy.log_prob(state, action)).mean()
        return v_loss, q_loss, policy_loss

    def update(self, batch):
        losses = self.losses(*batch)
        self.optimizer.zero_grad(set_to_none=True)
        sum(losses).backward()
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.followed[1], self.followed[0], self.args.tau)
        return torch.stack([loss.detach() for loss in losses])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=0.005)
    parser.add_argument("--expectile", type=float, default=0.9)
    parser.add_argument("--beta", type=float, default=3.0)
    parser.add_argument("--lr", type=float, default=3e-4)
    args = parser.parse_args()
    torch.manual_seed(570)
    data, agent = Dataset(100_000, 571), IQL(args)
    recent = torch.zeros(3)
    for step in range(1, args.steps + 1):
        recent += agent.update(data.sample(args.batch_size))
        if step % 100 == 0:
            v, q, policy = (recent / 100).tolist()
            recent.zero_()
            print(f"step {step}: v {v:.4f}, q {q:.4f}, policy {policy:.4f}")


if __name__ == "__main__":
    main()
