"""Advantage actor-critic on many landings at once: the physics of all of them is one batch of tensors."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Landings:
    """A point mass that is to touch the ground slowly at the origin; thrust up, left, right or none."""

    THRUST = torch.tensor([[0.0, 0.0], [0.0, 0.12], [-0.06, 0.03], [0.06, 0.03]])

    def __init__(self, count, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.state = self.fresh(count)

    def fresh(self, count):
        spread = torch.tensor([1.0, 0.2, 0.2, 0.1])
        return spread * torch.randn(count, 4, generator=self.g) + torch.tensor([0.0, 2.0, 0.0, 0.0])

    def step(self, action):
        position, speed = self.state.split(2, dim=1)
        speed = speed + 0.2 * (self.THRUST[action] * 5 - torch.tensor([0.0, 0.25]))
        position = position + 0.2 * speed
        landed = position[:, 1] <= 0
        lost = (position.abs() > 4).any(1)
        gentle = 1 - speed.norm(dim=1) - position[:, 0].abs()
        reward = torch.where(landed, gentle.clamp(-1, 1) * 5, -0.02 * torch.ones(len(action))) - 3 * lost
        done = landed | lost
        after = torch.cat([position, speed], 1)
        self.state = torch.where(done[:, None], self.fresh(len(action)), after)
        return self.state, reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.heads = nn.Linear(width, 5)

    def forward(self, state):
        out = self.heads(self.trunk(state))
        return out[..., :4], out[..., 4]


def roll_out(model, landings, steps):
    """States, actions, rewards and ends of so many steps, and the state after them."""
    states, actions, rewards, ends = [], [], [], []
    state = landings.state
    with torch.inference_mode():
        for _ in range(steps):
            logits = model(state)[0]
            noise = torch.empty_like(logits).exponential_()
            action = (logits - noise.log()).argmax(1)
            after, reward, done = landings.step(action)
            states.append(state), actions.append(action), rewards.append(reward), ends.append(done)
            state = after
    return [torch.stack(part).clone() for part in (states, actions, rewards, ends)], state.clone()


def returns(rewards, ends, value, gamma):
    found = torch.empty_like(rewards)
    for t in range(len(rewards) - 1, -1, -1):
        value = rewards[t] + gamma * value * (1 - ends[t])
        found[t] = value
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--landings", type=int, default=512)
    parser.add_argument("--roll-out", type=int, default=8)
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--gamma", type=float, default=0.98)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    landings = Landings(args.landings, seed=0)
    for update in range(1, args.updates + 1):
        (states, actions, rewards, ends), last = roll_out(model, landings, args.roll_out)
        logits, values = model(torch.cat([states, last[None]]))
        targets = returns(rewards, ends, values[-1].detach(), args.gamma)
        log_policy = F.log_softmax(logits[:-1], dim=-1)
        advantage = targets - values[:-1].detach()
        chosen = log_policy.gather(-1, actions[..., None]).squeeze(-1)
        entropy = -(log_policy.exp() * log_policy).sum(-1).mean()
        loss = -(chosen * advantage).mean() + 0.5 * F.mse_loss(values[:-1], targets) - 0.01 * entropy
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if update % 100 == 0:
            print(f"update {update}: reward per step {rewards.mean():.3f}, entropy {entropy.item():.3f}")


if __name__ == "__main__":
    main()
