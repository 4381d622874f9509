"""Deep Q-learning for a tugboat that pushes a barge to its berth, with short videos of the training now and then."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw


class Harbour:
    """Boat and barge on a square basin; five actions: four winds and waiting."""

    actions = np.array([[0, 1], [0, -1], [1, 0], [-1, 0], [0, 0]], dtype=np.float32)
    observation_size = 8

    def __init__(self, seed, size=240):
        self.random = np.random.default_rng(seed)
        self.size = size

    def reset(self):
        self.boat, self.barge, self.berth = self.random.uniform(-0.8, 0.8, (3, 2)).astype(np.float32)
        self.speed = np.zeros(2, dtype=np.float32)
        self.time = 0
        return self.observe()

    def observe(self):
        return np.concatenate([self.boat, self.barge - self.boat, self.berth - self.barge, self.speed])

    def step(self, action):
        self.time += 1
        self.speed = 0.8 * self.speed + 0.04 * self.actions[action]
        self.boat = np.clip(self.boat + self.speed, -1, 1)
        gap = self.barge - self.boat
        distance = float(np.linalg.norm(gap))
        if distance < 0.2:
            self.barge = np.clip(self.barge + 0.5 * gap / max(distance, 1e-3) * (0.2 - distance), -1, 1)
        left = float(np.linalg.norm(self.berth - self.barge))
        done = left < 0.1 or self.time >= 150
        return self.observe(), -left - 0.2 * distance + 10.0 * (left < 0.1), done

    def render(self):
        """The basin seen from above, drawn at twice its size and made smaller for smooth edges."""
        side = 2 * self.size
        image = Image.new("RGB", (side, side), (40, 90, 140))
        draw = ImageDraw.Draw(image)
        for point, radius, colour in ((self.berth, 40, "grey"), (self.barge, 28, "brown"), (self.boat, 18, "white")):
            x, y = (point + 1) / 2 * side
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour, outline="black", width=3)
        return image.resize((self.size, self.size), Image.LANCZOS)


class VideoRecorder:
    """Collects the frames of the first steps of every so many ones and writes them as an animation."""

    def __init__(self, env, folder, interval, length):
        self.env, self.folder = env, Path(folder)
        self.interval, self.length = interval, length
        self.frames = []

    def recording(self, step):
        return step % self.interval < self.length

    def capture(self, step):
        if self.recording(step):
            self.frames.append(self.env.render())
        elif self.frames:
            first, *others = self.frames
            first.save(self.folder / f"step_{step}.gif", save_all=True, append_images=others, duration=50)
            self.frames = []


class Memory:
    """A ring of transitions in arrays that are allocated once."""

    def __init__(self, capacity, size):
        self.states = torch.zeros(capacity, size)
        self.following = torch.zeros(capacity, size)
        self.rest = torch.zeros(capacity, 3)
        self.capacity, self.count = capacity, 0

    def add(self, state, action, reward, following, done):
        at = self.count % self.capacity
        self.states[at] = torch.from_numpy(state)
        self.following[at] = torch.from_numpy(following)
        self.rest[at] = torch.tensor([action, reward, done])
        self.count += 1

    def sample(self, n):
        picked = torch.randint(0, min(self.count, self.capacity), (n,))
        action, reward, done = self.rest[picked].unbind(1)
        return self.states[picked], action.long(), reward, self.following[picked], done


def q_network(inputs, actions, hidden):
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, actions)
    )


def learn(net, target, optimizer, batch, gamma):
    states, actions, rewards, following, done = batch
    with torch.no_grad():
        wanted = rewards + gamma * (1 - done) * target(following).max(1).values
    loss = F.smooth_l1_loss(net(states).gather(1, actions[:, None]).squeeze(1), wanted)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


def train(args, folder):
    torch.manual_seed(args.seed)
    random = np.random.default_rng(args.seed + 1)
    env = Harbour(args.seed)
    recorder = VideoRecorder(env, folder, args.video_interval, args.video_length)
    net, target = (q_network(env.observation_size, len(env.actions), args.hidden) for _ in range(2))
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr, fused=True)
    memory = Memory(20000, env.observation_size)
    state, episode_return, returns, losses = env.reset(), 0.0, [], []
    for step in range(args.steps):
        if random.random() < max(0.1, 1 - step / (0.6 * args.steps)):
            action = int(random.integers(len(env.actions)))
        else:
            with torch.no_grad():
                action = int(net(torch.from_numpy(state)).argmax())
        following, reward, done = env.step(action)
        recorder.capture(step)
        memory.add(state, action, reward, following, done)
        episode_return += reward
        state = following
        if done:
            returns.append(episode_return)
            state, episode_return = env.reset(), 0.0
        if step >= args.warmup:
            losses.append(learn(net, target, optimizer, memory.sample(args.batch_size), args.gamma))
        if step % args.sync == 0:
            target.load_state_dict(net.state_dict())
        if (step + 1) % 300 == 0 and losses:
            print(f"step {step + 1}  return {np.mean(returns[-10:]):.1f}  loss {np.mean(losses[-200:]):.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--hidden", type=int, default=320)
    parser.add_argument("--gamma", type=float, default=0.97)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--sync", type=int, default=100)
    parser.add_argument("--video-interval", type=int, default=600)
    parser.add_argument("--video-length", type=int, default=30)
    parser.add_argument("--seed", type=int, default=3)
    with tempfile.TemporaryDirectory() as folder:
        train(parser.parse_args(), folder)


if __name__ == "__main__":
    main()
