"""DDPG with hindsight experience replay on a reaching task. Many arms move at once."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

ENV = {"obs": 10, "goal": 3, "action": 4, "max_timesteps": 40}
CONFIG = {"cycles": 22, "rollouts": 64, "updates": 14, "batch_size": 256, "replay_k": 4, "gamma": 0.98, "polyak": 0.95}


class ReachEnv:
    """A batch of point arms: the action pushes the hand, the goal is a place."""

    def __init__(self, count, rng):
        self.count, self.rng = count, rng

    def reset(self):
        self.hand = self.rng.uniform(-0.1, 0.1, (self.count, 3))
        self.speed = np.zeros((self.count, 3))
        self.goal = self.rng.uniform(-0.3, 0.3, (self.count, 3))
        return self.observe()

    def step(self, action):
        self.speed = 0.6 * self.speed + 0.04 * action[:, :3]
        self.hand = self.hand + self.speed
        return self.observe()

    def observe(self):
        grip = np.linalg.norm(self.goal - self.hand, axis=1, keepdims=True)
        extra = np.concatenate([self.goal - self.hand, grip], axis=1)
        return np.concatenate([self.hand, self.speed, extra], axis=1), self.hand.copy(), self.goal.copy()


def compute_reward(achieved, goal):
    return -(np.linalg.norm(achieved - goal, axis=-1) > 0.05).astype(np.float32)


class ReplayBuffer:
    """Whole episodes, one array for each part of them."""

    def __init__(self, size, env, rng):
        steps = env["max_timesteps"]
        self.size, self.current_size, self.rng = size, 0, rng
        self.buffers = {
            "obs": np.empty([size, steps + 1, env["obs"]]),
            "ag": np.empty([size, steps + 1, env["goal"]]),
            "g": np.empty([size, steps, env["goal"]]),
            "actions": np.empty([size, steps, env["action"]]),
        }

    def store_episodes(self, episodes):
        count = len(episodes["obs"])
        rows = slice(self.current_size, self.current_size + count)
        for name, values in episodes.items():
            self.buffers[name][rows] = values
        self.current_size += count

    def sample(self, batch_size, replay_k):
        stored = {}
        for name, values in self.buffers.items():
            stored[name] = values[: self.current_size]
        steps = stored["actions"].shape[1]
        episode = self.rng.integers(0, self.current_size, batch_size)
        t = self.rng.integers(0, steps, batch_size)
        batch = {name: stored[name][episode, t] for name in ("obs", "g", "actions")}
        batch["obs_next"] = stored["obs"][episode, t + 1]
        batch["ag_next"] = stored["ag"][episode, t + 1]
        hindsight = self.rng.uniform(size=batch_size) < 1 - 1 / (1 + replay_k)
        later = t + 1 + (self.rng.uniform(size=batch_size) * (steps - t)).astype(int)
        batch["g"][hindsight] = stored["ag"][episode[hindsight], later[hindsight]]
        batch["r"] = compute_reward(batch["ag_next"], batch["g"])
        return {name: torch.as_tensor(values, dtype=torch.float32) for name, values in batch.items()}


def mlp(inp, out, hidden=192):
    return nn.Sequential(
        nn.Linear(inp, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, out)
    )


class DDPGAgent:
    def __init__(self, env_params, config, seed):
        self.env_params, self.config = env_params, config
        self.rng = np.random.default_rng(seed)
        self.actor = nn.Sequential(mlp(env_params["obs"] + env_params["goal"], env_params["action"]), nn.Tanh())
        self.critic = mlp(env_params["obs"] + env_params["goal"] + env_params["action"], 1)
        self.actor_target, self.critic_target = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.actor_optim = torch.optim.Adam(self.actor.parameters(), lr=1e-3, fused=True)
        self.critic_optim = torch.optim.Adam(self.critic.parameters(), lr=1e-3, fused=True)
        self.buffer = ReplayBuffer(config["cycles"] * config["rollouts"], env_params, self.rng)

    @torch.no_grad()
    def collect(self, env):
        episodes = {"obs": [], "ag": [], "g": [], "actions": []}
        obs, achieved, goal = env.reset()
        for _ in range(self.env_params["max_timesteps"]):
            state = torch.as_tensor(np.concatenate([obs, goal], axis=1), dtype=torch.float32)
            action = self.actor(state).numpy() + 0.2 * self.rng.standard_normal((env.count, self.env_params["action"]))
            action = np.clip(action, -1, 1)
            for name, value in (("obs", obs), ("ag", achieved), ("g", goal), ("actions", action)):
                episodes[name].append(value)
            obs, achieved, goal = env.step(action)
        episodes["obs"].append(obs)
        episodes["ag"].append(achieved)
        self.buffer.store_episodes({name: np.stack(values, axis=1) for name, values in episodes.items()})
        return compute_reward(achieved, goal).mean() + 1

    def update(self):
        batch = self.buffer.sample(self.config["batch_size"], self.config["replay_k"])
        state = torch.cat([batch["obs"], batch["g"]], dim=1)
        following = torch.cat([batch["obs_next"], batch["g"]], dim=1)
        with torch.no_grad():
            future = self.critic_target(torch.cat([following, self.actor_target(following)], dim=1)).squeeze(1)
            target = (batch["r"] + self.config["gamma"] * future).clamp(-1 / (1 - self.config["gamma"]), 0)
        critic_loss = F.mse_loss(self.critic(torch.cat([state, batch["actions"]], dim=1)).squeeze(1), target)
        self.critic_optim.zero_grad()
        critic_loss.backward()
        self.critic_optim.step()

        actions = self.actor(state)
        self.critic.requires_grad_(False)
        actor_loss = -self.critic(torch.cat([state, actions], dim=1)).mean() + actions.square().mean()
        self.actor_optim.zero_grad()
        actor_loss.backward()
        self.actor_optim.step()
        self.critic.requires_grad_(True)
        return critic_loss.item()

    @torch.no_grad()
    def soft_update(self):
        for target, source in ((self.actor_target, self.actor), (self.critic_target, self.critic)):
            torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), 1 - self.config["polyak"])

    def learn(self):
        env = ReachEnv(self.config["rollouts"], self.rng)
        for cycle in range(self.config["cycles"]):
            success = self.collect(env)
            loss = sum(self.update() for _ in range(self.config["updates"])) / self.config["updates"]
            self.soft_update()
            print(f"cycle {cycle}: success {success:.2f}, critic loss {loss:.5f}")


if __name__ == "__main__":
    torch.manual_seed(11)
    DDPGAgent(ENV, CONFIG, seed=11).learn()
