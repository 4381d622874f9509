"""PPO with continuous actions, on a batch of simulated joints. The spread of the actions decays by hand."""

import torch
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal

STATE_DIM, ACTION_DIM, ENVS, HORIZON = 12, 6, 32, 32
K_EPOCHS, MINIBATCH, UPDATES = 6, 256, 30
GAMMA, LAM, EPS_CLIP = 0.99, 0.95, 0.2


class Joints:
    """Joints that are to follow targets."""

    def __init__(self, generator):
        self.generator = generator
        self.angle = torch.zeros(ENVS, ACTION_DIM)
        self.target = torch.rand(ENVS, ACTION_DIM, generator=generator) * 2 - 1
        self.left = torch.randint(10, 40, (ENVS,), generator=generator)

    def observe(self):
        return torch.cat([self.angle, self.target], dim=1)

    def step(self, action):
        self.angle = (self.angle + 0.2 * action.clamp(-1, 1)).clamp(-2, 2)
        reward = -(self.angle - self.target).square().sum(dim=1) - 0.01 * action.square().sum(dim=1)
        self.left -= 1
        done = self.left <= 0
        fresh = torch.rand(ENVS, ACTION_DIM, generator=self.generator) * 2 - 1
        self.target = torch.where(done[:, None], fresh, self.target)
        self.angle = torch.where(done[:, None], torch.zeros_like(self.angle), self.angle)
        self.left = torch.where(done, torch.full_like(self.left, 40), self.left)
        return self.observe(), reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self, action_std=0.6):
        super().__init__()
        self.action_std = action_std
        self.actor = nn.Sequential(
            nn.Linear(STATE_DIM, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, ACTION_DIM), nn.Tanh()
        )
        self.critic = nn.Sequential(nn.Linear(STATE_DIM, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def distribution(self, state):
        mean = self.actor(state)
        variance = torch.full_like(mean, self.action_std**2)
        return MultivariateNormal(mean, torch.diag_embed(variance))

    @torch.no_grad()
    def act(self, state):
        # The same normal, drawn coordinate by coordinate.
        base = Independent(Normal(self.actor(state), self.action_std), 1)
        action = base.sample()
        return action, base.log_prob(action), self.critic(state).squeeze(1)

    def evaluate(self, state, action):
        dist = self.distribution(state)
        return dist.log_prob(action), self.critic(state).squeeze(1), dist.entropy()


def rollout(env, policy):
    parts = {name: [] for name in ("state", "action", "logprob", "value", "reward", "done")}
    state = env.observe()
    for _ in range(HORIZON):
        action, logprob, value = policy.act(state)
        following, reward, done = env.step(action)
        for name, part in zip(parts, (state, action, logprob, value, reward, done)):
            parts[name].append(part)
        state = following
    parts = {name: torch.stack(part) for name, part in parts.items()}
    with torch.no_grad():
        following = policy.critic(state).squeeze(1)
    advantages, last = torch.empty_like(parts["reward"]), torch.zeros(ENVS)
    for t in reversed(range(HORIZON)):
        kept = 1 - parts["done"][t]
        delta = parts["reward"][t] + GAMMA * following * kept - parts["value"][t]
        last = delta + GAMMA * LAM * kept * last
        advantages[t], following = last, parts["value"][t]
    parts["advantage"], parts["return"] = advantages, advantages + parts["value"]
    return {name: part.flatten(0, 1) for name, part in parts.items()}


def update(policy, optimizer, data):
    advantage = (data["advantage"] - data["advantage"].mean()) / (data["advantage"].std() + 1e-7)
    for _ in range(K_EPOCHS):
        for rows in torch.randperm(ENVS * HORIZON).split(MINIBATCH):
            logprobs, values, entropy = policy.evaluate(data["state"][rows], data["action"][rows])
            ratios = torch.exp(logprobs - data["logprob"][rows])
            surr1 = ratios * advantage[rows]
            surr2 = ratios.clamp(1 - EPS_CLIP, 1 + EPS_CLIP) * advantage[rows]
            value_loss = (values - data["return"][rows]).square()
            loss = (-torch.min(surr1, surr2) + 0.5 * value_loss - 0.01 * entropy).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(7)
    env, policy = Joints(torch.Generator().manual_seed(8)), ActorCritic()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4, fused=True)
    for iteration in range(UPDATES):
        data = rollout(env, policy)
        loss = update(policy, optimizer, data)
        policy.action_std = max(0.1, policy.action_std - 0.02)
        print(f"update {iteration}: reward {data['reward'].mean().item():.3f}, loss {loss:.4f}")


if __name__ == "__main__":
    main()
