"""Proximal policy optimisation on thousands of pendulums that are one tensor: a rollout, then a few passes over it."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
ENVS, HORIZON = 2048, 4

policy = nn.Sequential(nn.Linear(3, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 5)).to(device)
value = nn.Sequential(nn.Linear(3, 256), nn.Tanh(), nn.Linear(256, 1)).to(device)
optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=3e-4, fused=True)


def observe(angle, speed):
    return torch.stack([angle.cos(), angle.sin(), speed], 1)


@torch.no_grad()
def rollout(angle, speed):
    rows = []
    for _ in range(HORIZON):
        seen = observe(angle, speed)
        logits = policy(seen).log_softmax(1)
        action = torch.multinomial(logits.exp(), 1)
        speed = (speed + 0.05 * (10 * angle.sin() + action.squeeze(1) - 2)).clamp(-8, 8)
        angle = angle + 0.05 * speed
        rows.append((seen, action, logits.gather(1, action), -((angle.cos() - 1) ** 2) - 0.01 * speed**2))
    return [torch.cat(column) for column in zip(*rows)], angle, speed


angle, speed = torch.rand(ENVS, device=device) * 6, torch.zeros(ENVS, device=device)
for iteration in range(20):
    (states, actions, before, rewards), angle, speed = rollout(angle, speed)
    with torch.no_grad():
        advantage = rewards - value(states).squeeze(1)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    for _ in range(2):
        for chosen in torch.randperm(len(states), device=device).split(4096):
            logits = policy(states[chosen]).log_softmax(1)
            ratio = (logits.gather(1, actions[chosen]) - before[chosen]).exp().squeeze(1)
            gain = torch.minimum(ratio * advantage[chosen], ratio.clamp(0.8, 1.2) * advantage[chosen])
            loss = nn.functional.mse_loss(value(states[chosen]).squeeze(1), rewards[chosen]) - gain.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if iteration % 5 == 0:
        print(f"iteration {iteration}: reward {rewards.mean().item():.4f}")
