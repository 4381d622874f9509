"""PPO for a simulated walker, written for beginners: collect a batch, compute rewards-to-go, take epochs of it."""

import time

import numpy as np
import torch
from torch import nn
from torch.distributions import MultivariateNormal


class Walkers:
    """A bundle of damped joints that are to keep up a speed; many copies are stepped at once."""

    def __init__(self, copies, joints=20, seed=0):
        rng = np.random.default_rng(seed)
        self.copies, self.joints = copies, joints
        self.coupling = rng.standard_normal((joints, joints)).astype(np.float32) * 0.1
        self.goal = rng.uniform(-1, 1, joints).astype(np.float32)
        self.rng = rng

    def observe(self):
        error = self.speed - self.goal
        return np.concatenate([self.angle, self.speed, error, np.sin(self.angle), np.cos(self.angle)], 1)

    def reset(self):
        self.angle = self.rng.uniform(-0.1, 0.1, (self.copies, self.joints)).astype(np.float32)
        self.speed = np.zeros_like(self.angle)
        return self.observe()

    def step(self, action):
        force = np.clip(action, -1, 1) - 0.3 * np.sin(self.angle) + self.angle @ self.coupling
        self.speed = 0.9 * self.speed + 0.2 * force
        self.angle = np.clip(self.angle + 0.05 * self.speed, -2, 2)
        reward = 1.0 - np.abs(self.speed - self.goal).mean(1) - 0.01 * (action**2).mean(1)
        return self.observe(), reward.astype(np.float32)


class FeedForwardNN(nn.Module):
    def __init__(self, in_dim, out_dim, width=128):
        super().__init__()
        self.layer1, self.layer2 = nn.Linear(in_dim, width), nn.Linear(width, width)
        self.layer3 = nn.Linear(width, out_dim)

    def forward(self, obs):
        return self.layer3(torch.relu(self.layer2(torch.relu(self.layer1(obs)))))


class PPO:
    def __init__(self, env, **hyperparameters):
        self.timesteps_per_rollout, self.n_updates, self.minibatch = 100, 2, 400
        self.lr, self.gamma, self.clip = 1e-3, 0.95, 0.2
        for name, value in hyperparameters.items():
            setattr(self, name, value)
        self.env = env
        obs_dim, act_dim = env.joints * 5, env.joints
        self.actor, self.critic = FeedForwardNN(obs_dim, act_dim), FeedForwardNN(obs_dim, 1)
        self.actor_optim = torch.optim.Adam(self.actor.parameters(), lr=self.lr)
        self.critic_optim = torch.optim.Adam(self.critic.parameters(), lr=self.lr)
        self.cov_mat = torch.diag(torch.full((act_dim,), 0.25))

    def get_action(self, obs):
        with torch.no_grad():
            dist = MultivariateNormal(self.actor(torch.from_numpy(obs)), self.cov_mat)
            action = dist.sample()
            return action.numpy(), dist.log_prob(action).numpy()

    def compute_rtgs(self, rewards):
        rtgs, running = [], np.zeros(self.env.copies, np.float32)
        for reward in reversed(rewards):
            running = reward + self.gamma * running
            rtgs.insert(0, running)
        return rtgs

    def rollout(self):
        batch_obs, batch_acts, batch_log_probs, batch_rews = [], [], [], []
        obs = self.env.reset()
        for _ in range(self.timesteps_per_rollout):
            batch_obs.append(obs)
            action, log_prob = self.get_action(obs)
            obs, reward = self.env.step(action)
            batch_acts.append(action)
            batch_log_probs.append(log_prob)
            batch_rews.append(reward)
        self.mean_return = np.mean(batch_rews)
        batch = (batch_obs, batch_acts, batch_log_probs, self.compute_rtgs(batch_rews))
        return [torch.tensor(np.array(part), dtype=torch.float).flatten(0, 1) for part in batch]

    def learn(self, rollouts):
        start = time.time()
        for i in range(rollouts):
            obs, acts, old_log_probs, rtgs = self.rollout()
            with torch.no_grad():
                advantage = rtgs - self.critic(obs).squeeze(1)
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-10)
            for _ in range(self.n_updates):
                for index in torch.randperm(len(obs)).split(self.minibatch):
                    dist = MultivariateNormal(self.actor(obs[index]), self.cov_mat)
                    ratio = torch.exp(dist.log_prob(acts[index]) - old_log_probs[index])
                    clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
                    actor_loss = -torch.min(ratio * advantage[index], clipped * advantage[index]).mean()
                    critic_loss = nn.functional.mse_loss(self.critic(obs[index]).squeeze(1), rtgs[index])
                    self.actor_optim.zero_grad()
                    actor_loss.backward()
                    self.actor_optim.step()
                    self.critic_optim.zero_grad()
                    critic_loss.backward()
                    self.critic_optim.step()
            print(f"rollout {i}: mean reward {self.mean_return:.3f} after {time.time() - start:.1f} s")


if __name__ == "__main__":
    np.random.seed(0)
    torch.manual_seed(0)
    PPO(Walkers(copies=32)).learn(rollouts=24)
