"""Double DQN that catches falling balls, from stacked frames."""

import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim

Transition = namedtuple("Transition", "state action reward next_state done")


class Catcher:
    """A ball falls over a field of 20 x 20; the paddle below it moves left, stays or moves right."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.ball = [0, int(self.rng.integers(20))]
        self.paddle = 10
        self.frames = deque([self.draw()] * 4, maxlen=4)
        return np.stack(self.frames)

    def draw(self):
        frame = np.zeros((20, 20), dtype=np.float32)
        frame[self.ball[0], self.ball[1]] = 1.0
        frame[19, max(0, self.paddle - 2) : self.paddle + 3] = 1.0
        return frame

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + action - 1, 0, 19))
        self.ball[0] += 1
        self.frames.append(self.draw())
        done = self.ball[0] == 19
        reward = float(abs(self.ball[1] - self.paddle) <= 2) * 2 - 1 if done else 0.0
        return np.stack(self.frames), reward, done


class Buffer:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, size):
        batch = Transition(*zip(*random.sample(self.memory, size), strict=True))
        states = torch.tensor(batch.state, dtype=torch.float32)
        next_states = torch.tensor(batch.next_state, dtype=torch.float32)
        actions = torch.tensor(batch.action)
        rewards = torch.tensor(batch.reward)
        return states, actions, rewards, next_states, torch.tensor(batch.done, dtype=torch.float32)


def q_network():
    return nn.Sequential(
        nn.Conv2d(4, 16, 6, stride=3),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 3),
    )


class Agent:
    def __init__(self, lr=3e-4, gamma=0.97):
        self.online, self.target = q_network(), q_network()
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = optim.RMSprop(self.online.parameters(), lr=lr)
        self.gamma = gamma

    @torch.no_grad()
    def act(self, state, epsilon):
        if random.random() < epsilon:
            return random.randrange(3)
        return int(self.online(torch.from_numpy(state)[None]).argmax())

    def learn(self, states, actions, rewards, next_states, done):
        with torch.no_grad():
            best = self.online(next_states).argmax(1, keepdim=True)
            value = self.target(next_states).gather(1, best).squeeze(1)
            wanted = rewards + self.gamma * (1 - done) * value
        taken = self.online(states).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(taken, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def main(steps=600, warmup=300, batch_size=32):
    random.seed(0)
    torch.manual_seed(0)
    env, agent, buffer = Catcher(np.random.default_rng(0)), Agent(), Buffer(5000)
    state, wins = env.reset(), deque(maxlen=50)
    for step in range(steps):
        action = agent.act(state, max(0.05, 1 - step / 500))
        following, reward, done = env.step(action)
        buffer.push(state, action, reward, following, done)
        state = following
        if done:
            wins.append(reward > 0)
            state = env.reset()
        if step > warmup:
            agent.learn(*buffer.sample(batch_size))
        if step % 200 == 0:
            agent.target.load_state_dict(agent.online.state_dict())
            print(f"step {step}: wins {np.mean(wins) if wins else 0:.2f}")


if __name__ == "__main__":
    main()
