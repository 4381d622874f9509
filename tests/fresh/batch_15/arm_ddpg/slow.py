"""DDPG on a planar arm that has to reach a point: actor, critic, targets and a replay memory of transitions."""

import argparse
import random
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", "state action reward next_state done")


class ArmEnv:
    """Joints that are driven by torques; the reward is the negative distance of the tip to the target."""

    def __init__(self, joints=8, horizon=100, seed=0):
        self.rng = np.random.default_rng(seed)
        self.joints, self.horizon = joints, horizon
        self.state_size, self.action_size = 3 * joints + 4, joints

    def reset(self):
        self.angle = self.rng.uniform(-np.pi, np.pi, self.joints)
        self.speed = np.zeros(self.joints)
        direction, reach = self.rng.uniform(-np.pi, np.pi), self.rng.uniform(0.3, 0.9)
        self.target = reach * np.array([np.cos(direction), np.sin(direction)])
        self.time = 0
        return self.observe()

    def tip(self):
        total = np.cumsum(self.angle)
        return np.array([np.cos(total).sum(), np.sin(total).sum()]) / self.joints

    def observe(self):
        parts = (np.cos(self.angle), np.sin(self.angle), self.speed, self.target, self.tip() - self.target)
        return np.concatenate(parts).astype(np.float32)

    def step(self, action):
        self.speed = 0.9 * self.speed + 0.1 * np.clip(action, -1, 1)
        self.angle = self.angle + 0.3 * self.speed
        self.time += 1
        distance = np.linalg.norm(self.tip() - self.target)
        reward = -distance - 0.01 * np.square(action).sum()
        return self.observe(), float(reward), self.time >= self.horizon


class ReplayMemory:
    def __init__(self, capacity):
        self.capacity, self.memory, self.position = capacity, [], 0

    def push(self, *values):
        if len(self.memory) < self.capacity:
            self.memory.append(None)
        self.memory[self.position] = Transition(*values)
        self.position = (self.position + 1) % self.capacity

    def sample(self, batch_size):
        batch = Transition(*zip(*random.sample(self.memory, batch_size)))
        states = torch.tensor(batch.state)
        actions = torch.tensor(batch.action)
        rewards = torch.tensor(batch.reward).unsqueeze(1)
        next_states = torch.tensor(batch.next_state)
        dones = torch.tensor(batch.done, dtype=torch.float32).unsqueeze(1)
        return states, actions, rewards, next_states, dones

    def __len__(self):
        return len(self.memory)


def mlp(inside, outside, hidden=(256, 256)):
    layers = []
    for width in hidden:
        layers += [nn.Linear(inside, width), nn.ReLU()]
        inside = width
    return nn.Sequential(*layers, nn.Linear(inside, outside))


class Noise:
    """Ornstein-Uhlenbeck process."""

    def __init__(self, size, theta=0.15, sigma=0.2):
        self.theta, self.sigma, self.value = theta, sigma, np.zeros(size, dtype=np.float32)

    def __call__(self):
        step = -self.theta * self.value + self.sigma * np.random.standard_normal(self.value.shape)
        self.value = (self.value + step).astype(np.float32)
        return self.value


class DDPG:
    def __init__(self, state_size, action_size, args):
        self.args = args
        self.actor = nn.Sequential(mlp(state_size, action_size), nn.Tanh())
        self.target_actor = nn.Sequential(mlp(state_size, action_size), nn.Tanh())
        self.critic = mlp(state_size + action_size, 1)
        self.target_critic = mlp(state_size + action_size, 1)
        self.target_actor.load_state_dict(self.actor.state_dict())
        self.target_critic.load_state_dict(self.critic.state_dict())
        self.target_actor.requires_grad_(False)
        self.target_critic.requires_grad_(False)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), args.actor_lr)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), args.critic_lr)

    @torch.no_grad()
    def act(self, state):
        return self.actor(torch.from_numpy(state)).numpy()

    def update(self, memory):
        states, actions, rewards, next_states, dones = memory.sample(self.args.batch_size)
        with torch.no_grad():
            next_value = self.target_critic(torch.cat([next_states, self.target_actor(next_states)], 1))
            wanted = rewards + self.args.gamma * (1 - dones) * next_value
        critic_loss = F.mse_loss(self.critic(torch.cat([states, actions], 1)), wanted)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        self.critic.requires_grad_(False)
        actor_loss = -self.critic(torch.cat([states, self.actor(states)], 1)).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        self.critic.requires_grad_(True)
        self.follow(self.actor, self.target_actor)
        self.follow(self.critic, self.target_critic)

    @torch.no_grad()
    def follow(self, source, target):
        torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), self.args.tau)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--gamma", type=float, default=0.98)
    parser.add_argument("--tau", type=float, default=0.01)
    parser.add_argument("--actor-lr", type=float, default=3e-4)
    parser.add_argument("--critic-lr", type=float, default=1e-3)
    args = parser.parse_args()
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    env = ArmEnv()
    agent, memory, noise = DDPG(env.state_size, env.action_size, args), ReplayMemory(20_000), Noise(env.action_size)
    for episode in range(args.episodes):
        state, done, score = env.reset(), False, 0.0
        while not done:
            action = np.clip(agent.act(state) + noise(), -1, 1)
            next_state, reward, done = env.step(action)
            memory.push(state, action, reward, next_state, done)
            state, score = next_state, score + reward
            if len(memory) >= args.warmup:
                agent.update(memory)
        print(f"episode {episode} return {score:.2f} transitions {len(memory)}")


if __name__ == "__main__":
    main()
