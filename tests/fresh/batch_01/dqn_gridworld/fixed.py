"""DQN in a vectorised grid world; one file, as single-file reinforcement learning code is written."""

import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=2600)
    parser.add_argument("--learning-rate", type=float, default=2.5e-4)
    parser.add_argument("--num-envs", type=int, default=128)
    parser.add_argument("--buffer-size", type=int, default=250_000)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--target-network-frequency", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--start-e", type=float, default=1.0)
    parser.add_argument("--end-e", type=float, default=0.05)
    parser.add_argument("--learning-starts", type=int, default=1300)
    parser.add_argument("--train-frequency", type=int, default=2)
    return parser.parse_args()


class VecGrid:
    """Agents look for a goal on a torus; the observation is where the goal lies, seen through fixed features."""

    def __init__(self, num_envs, size=12, obs_dim=48, seed=0):
        self.rng = np.random.default_rng(seed)
        self.num_envs, self.size = num_envs, size
        self.features = self.rng.standard_normal((4, obs_dim)).astype(np.float32)
        self.moves = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])
        self.pos = self.rng.integers(0, size, (num_envs, 2))
        self.goal = self.rng.integers(0, size, (num_envs, 2))

    def observe(self):
        delta = (self.goal - self.pos + self.size // 2) % self.size - self.size // 2
        state = np.concatenate([np.sin(delta), delta / self.size], 1).astype(np.float32)
        return np.tanh(state @ self.features)

    def step(self, actions):
        self.pos = (self.pos + self.moves[actions]) % self.size
        done = (self.pos == self.goal).all(1)
        reward = np.where(done, 1.0, -0.01).astype(np.float32)
        fresh = int(done.sum())
        self.goal[done] = self.rng.integers(0, self.size, (fresh, 2))
        return self.observe(), reward, done.astype(np.float32)


class ReplayBuffer:
    def __init__(self, capacity, obs_dim):
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.next_obs = np.zeros((capacity, obs_dim), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.dones = np.zeros(capacity, np.float32)
        self.capacity, self.ptr, self.size = capacity, 0, 0

    def add(self, obs, next_obs, actions, rewards, dones):
        where = (self.ptr + np.arange(len(obs))) % self.capacity
        self.obs[where], self.next_obs[where] = obs, next_obs
        self.actions[where], self.rewards[where], self.dones[where] = actions, rewards, dones
        self.ptr = (self.ptr + len(obs)) % self.capacity
        self.size = min(self.size + len(obs), self.capacity)

    def sample(self, batch_size):
        idxs = np.random.choice(self.size, size=batch_size, replace=True)
        parts = (self.obs, self.next_obs, self.actions, self.rewards, self.dones)
        return [torch.from_numpy(part[idxs]) for part in parts]


class QNetwork(nn.Module):
    def __init__(self, obs_dim, actions):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(obs_dim, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, actions)
        )

    def forward(self, x):
        return self.network(x)


def linear_schedule(start_e, end_e, duration, t):
    return max((end_e - start_e) / duration * t + start_e, end_e)


if __name__ == "__main__":
    args = parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    envs = VecGrid(args.num_envs, seed=args.seed)
    obs = envs.observe()
    q_network, target_network = QNetwork(obs.shape[1], 4), QNetwork(obs.shape[1], 4)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = optim.Adam(q_network.parameters(), lr=args.learning_rate)
    rb = ReplayBuffer(args.buffer_size, obs.shape[1])
    start, returns = time.time(), []
    for global_step in range(args.total_timesteps):
        epsilon = linear_schedule(args.start_e, args.end_e, args.total_timesteps / 2, global_step)
        with torch.no_grad():
            greedy = q_network(torch.from_numpy(obs)).argmax(1).numpy()
        actions = np.where(np.random.rand(args.num_envs) < epsilon, np.random.randint(0, 4, args.num_envs), greedy)
        next_obs, rewards, dones = envs.step(actions)
        returns.append(rewards.mean())
        rb.add(obs, next_obs, actions, rewards, dones)
        obs = next_obs
        if global_step > args.learning_starts and global_step % args.train_frequency == 0:
            b_obs, b_next, b_act, b_rew, b_done = rb.sample(args.batch_size)
            with torch.no_grad():
                td_target = b_rew + args.gamma * target_network(b_next).max(1).values * (1 - b_done)
            old_val = q_network(b_obs).gather(1, b_act[:, None]).squeeze(1)
            loss = F.mse_loss(td_target, old_val)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if global_step % 200 == 0:
                sps = int(global_step * args.num_envs / (time.time() - start))
                print(f"step={global_step} return={np.mean(returns[-100:]):.3f} loss={loss.item():.4f} SPS={sps}")
        if global_step % args.target_network_frequency == 0:
            target_network.load_state_dict(q_network.state_dict())
