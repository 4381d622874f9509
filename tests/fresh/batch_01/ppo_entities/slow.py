"""PPO for many small environments: dataclass config, rollout storage, clipped updates."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


@dataclass
class Config:
    num_envs: int = 8
    num_steps: int = 24
    updates: int = 24
    epochs: int = 4
    minibatches: int = 4
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    lr: float = 3e-4
    seed: int = 5


class Chasers:
    """A swarm of chasers on a line; each sees distances to eight moving targets."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n = n
        self.me = np.zeros(n, np.float32)
        self.them = self.rng.uniform(-5, 5, (n, 8)).astype(np.float32)
        self.speed = self.rng.uniform(-0.3, 0.3, (n, 8)).astype(np.float32)

    def obs(self):
        rel = self.them - self.me[:, None]
        return np.concatenate([rel, self.speed, np.abs(rel).min(1, keepdims=True)], 1)

    def step(self, actions):
        self.me += (actions - 2) * 0.4
        self.them += self.speed
        self.speed *= np.where(np.abs(self.them) > 5, -1, 1)
        reward = np.exp(-np.abs(self.them - self.me[:, None]).min(1))
        done = self.rng.random(self.n) < 0.02
        self.me[done] = 0
        return self.obs(), reward.astype(np.float32), done


def init(layer, std=2**0.5):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, acts, width=256):
        super().__init__()
        self.body = nn.Sequential(init(nn.Linear(obs_dim, width)), nn.Tanh(), init(nn.Linear(width, width)), nn.Tanh())
        self.pi = init(nn.Linear(width, acts), 0.01)
        self.v = init(nn.Linear(width, 1), 1.0)

    def act(self, obs, action=None):
        h = self.body(obs)
        dist = Categorical(logits=self.pi(h))
        action = dist.sample() if action is None else action
        return action, dist.log_prob(action), dist.entropy(), self.v(h).squeeze(-1)


def rollout(cfg, env, agent, obs, store):
    for t in range(cfg.num_steps):
        store["obs"][t] = obs
        with torch.no_grad():
            for i in range(cfg.num_envs):
                action, logp, _, value = agent.act(obs[i])
                store["act"][t, i], store["logp"][t, i], store["val"][t, i] = action, logp, value
        nxt, reward, done = env.step(store["act"][t].numpy())
        store["rew"][t], store["done"][t] = torch.from_numpy(reward), torch.from_numpy(done).float()
        obs = torch.from_numpy(nxt)
    with torch.no_grad():
        last = agent.act(obs)[3]
    adv, running = torch.zeros_like(store["rew"]), 0.0
    for t in reversed(range(cfg.num_steps)):
        alive = 1 - store["done"][t]
        following = last if t == cfg.num_steps - 1 else store["val"][t + 1]
        delta = store["rew"][t] + cfg.gamma * following * alive - store["val"][t]
        running = delta + cfg.gamma * cfg.lam * alive * running
        adv[t] = running
    return obs, adv, adv + store["val"]


def update(cfg, agent, optimizer, store, adv, ret):
    flat = {k: v.flatten(0, 1) for k, v in store.items()}
    adv, ret = adv.flatten(), ret.flatten()
    size = len(adv) // cfg.minibatches
    for _ in range(cfg.epochs):
        for idx in torch.randperm(len(adv)).split(size):
            _, logp, entropy, value = agent.act(flat["obs"][idx], flat["act"][idx])
            ratio = (logp - flat["logp"][idx]).exp()
            a = (adv[idx] - adv[idx].mean()) / (adv[idx].std() + 1e-8)
            pg = torch.max(-a * ratio, -a * ratio.clamp(1 - cfg.clip, 1 + cfg.clip)).mean()
            loss = pg - cfg.ent_coef * entropy.mean() + cfg.vf_coef * 0.5 * ((value - ret[idx]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def main(cfg):
    torch.manual_seed(cfg.seed)
    env = Chasers(cfg.num_envs, cfg.seed)
    obs = torch.from_numpy(env.obs())
    agent = ActorCritic(obs.shape[1], 5)
    optimizer = torch.optim.Adam(agent.parameters(), lr=cfg.lr, eps=1e-5)
    shape = (cfg.num_steps, cfg.num_envs)
    store = {k: torch.zeros(shape) for k in ("logp", "val", "rew", "done")}
    store |= {"obs": torch.zeros(*shape, obs.shape[1]), "act": torch.zeros(shape, dtype=torch.long)}
    for n in range(cfg.updates):
        obs, adv, ret = rollout(cfg, env, agent, obs, store)
        update(cfg, agent, optimizer, store, adv, ret)
        print(f"update {n}: mean reward {store['rew'].mean().item():.3f}")


if __name__ == "__main__":
    main(Config())
