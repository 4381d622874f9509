"""Advantage actor-critic on several poles at once."""

import math
import multiprocessing

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


class CartPole:
    """The classic pole on a cart, simulated by Euler steps."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        self.steps = 0
        return self.state.astype(np.float32)

    def step(self, action):
        x, speed, theta, turn = self.state.tolist()
        force = 10.0 if action == 1 else -10.0
        cos, sin = math.cos(theta), math.sin(theta)
        temp = (force + 0.05 * turn**2 * sin) / 1.1
        turning = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        speeding = temp - 0.05 * turning * cos / 1.1
        x, theta = x + 0.02 * speed, theta + 0.02 * turn
        self.state = np.array([x, speed + 0.02 * speeding, theta, turn + 0.02 * turning])
        self.steps += 1
        done = abs(x) > 2.4 or abs(theta) > 0.21 or self.steps >= 500
        length = self.steps
        observation = self.reset() if done else self.state.astype(np.float32)
        return observation, 1.0, done, length


class DummyVecEnv:
    """Steps its environments one after the other in this process."""

    def __init__(self, makers):
        self.envs = [make() for make in makers]

    def reset(self):
        return np.stack([env.reset() for env in self.envs])

    def step(self, actions):
        return tuple(map(np.array, zip(*(env.step(action) for env, action in zip(self.envs, actions)))))

    def close(self):
        self.envs.clear()


def worker(remote, make):
    env = make()
    while True:
        command, data = remote.recv()
        if command == "step":
            remote.send(env.step(data))
        elif command == "reset":
            remote.send(env.reset())
        else:
            break


class SubprocVecEnv:
    """Has a process for each environment."""

    def __init__(self, makers):
        context = multiprocessing.get_context("fork")
        self.remotes, ends = zip(*(context.Pipe() for _ in makers))
        self.processes = [context.Process(target=worker, args=pair, daemon=True) for pair in zip(ends, makers)]
        for process in self.processes:
            process.start()

    def reset(self):
        return np.stack(self.ask([("reset", None)] * len(self.remotes)))

    def step(self, actions):
        return tuple(map(np.array, zip(*self.ask([("step", action) for action in actions]))))

    def ask(self, messages):
        for remote, message in zip(self.remotes, messages):
            remote.send(message)
        return [remote.recv() for remote in self.remotes]

    def close(self):
        for remote, process in zip(self.remotes, self.processes):
            remote.send(("close", None))
            process.join()


class ActorCritic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.logits, self.value = nn.Linear(hidden, 2), nn.Linear(hidden, 1)

    def forward(self, observation):
        return self.logits(self.actor(observation)), self.value(self.critic(observation)).squeeze(-1)


class A2C:
    def __init__(self, envs, count, n_steps=20, gamma=0.99, lr=2e-3):
        self.envs, self.count, self.n_steps, self.gamma = envs, count, n_steps, gamma
        self.model = ActorCritic()
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=lr, alpha=0.99, eps=1e-5)
        self.observation = torch.from_numpy(envs.reset())
        self.lengths = [20.0]

    @torch.no_grad()
    def collect(self):
        observations, actions, rewards, alive = [], [], [], []
        for _ in range(self.n_steps):
            logits, _ = self.model(self.observation)
            action = torch.multinomial(logits.softmax(dim=-1), 1).squeeze(1)
            following, reward, done, length = self.envs.step(action.tolist())
            observations.append(self.observation)
            actions.append(action)
            rewards.append(torch.from_numpy(reward).float())
            alive.append(1 - torch.from_numpy(done).float())
            self.lengths.extend(length[done].tolist())
            self.observation = torch.from_numpy(following)
        _, value = self.model(self.observation)
        returns = []
        for reward, on in zip(reversed(rewards), reversed(alive)):
            value = reward + self.gamma * on * value
            returns.append(value)
        return torch.stack(observations), torch.stack(actions), torch.stack(returns[::-1])

    def learn(self, updates):
        for update in range(updates):
            observations, actions, returns = self.collect()
            logits, values = self.model(observations)
            distribution = Categorical(logits=logits)
            advantage = returns - values
            policy_loss = -(advantage.detach() * distribution.log_prob(actions)).mean()
            loss = policy_loss + 0.5 * advantage.square().mean() - 0.01 * distribution.entropy().mean()
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            self.optimizer.step()
            if update % 100 == 0:
                recent = self.lengths[-50:]
                print(f"update {update}: loss {loss.item():.3f} length {sum(recent) / len(recent):.1f}")


if __name__ == "__main__":
    torch.manual_seed(608)
    makers = [lambda seed=seed: CartPole(seed) for seed in range(8)]
    vector = SubprocVecEnv(makers)
    A2C(vector, len(makers)).learn(updates=400)
    vector.close()
