"""A recurrent actor-critic that learns from whole rollouts of a memory task."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical


class Recall:
    """The cue shown at first must be named at every later step; many copies step at once."""

    def __init__(self, copies, cues, length):
        self.copies, self.cues, self.length = copies, cues, length

    def reset(self):
        self.t = 0
        self.cue = torch.randint(self.cues, (self.copies,))
        return torch.cat([F.one_hot(self.cue, self.cues).float(), torch.ones(self.copies, 1)], dim=1)

    def step(self, action):
        self.t += 1
        noise = 0.3 * torch.randn(self.copies, self.cues)
        reward = (action == self.cue).float()
        return torch.cat([noise, torch.zeros(self.copies, 1)], dim=1), reward


class ActorCritic(nn.Module):
    def __init__(self, inputs, actions, width=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.core = nn.GRU(width, width)
        self.policy, self.value = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(self, observations, state):
        h, state = self.core(self.encoder(observations), state)
        return self.policy(h), self.value(h).squeeze(-1), state


class Learner:
    def __init__(self, model, gamma=0.9, lr=1e-3):
        self.model, self.gamma = model, gamma
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def returns(self, rewards):
        total, out = torch.zeros_like(rewards[0]), []
        for reward in rewards.flip(0):
            total = reward + self.gamma * total
            out.append(total)
        return torch.stack(out[::-1])

    def train(self, observations, actions, rewards, epochs=2):
        wanted = self.returns(rewards)
        for _ in range(epochs):
            state = torch.zeros(1, observations.shape[1], 128)
            logits, values = [], []
            for observation in observations:
                step_logits, step_values, state = self.model(observation[None], state)
                logits.append(step_logits)
                values.append(step_values)
            logits, values = torch.cat(logits), torch.cat(values)
            chosen = Categorical(logits=logits)
            advantage = (wanted - values).detach()
            loss = -(chosen.log_prob(actions) * advantage).mean() + 0.5 * F.mse_loss(values, wanted)
            loss = loss - 0.01 * chosen.entropy().mean()
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()


@torch.no_grad()
def rollout(env, model):
    observation, state = env.reset(), torch.zeros(1, env.copies, 128)
    observations, actions, rewards = [], [], []
    for _ in range(env.length):
        logits, _, state = model(observation[None], state)
        action = Categorical(logits=logits[0]).sample()
        observations.append(observation)
        actions.append(action)
        observation, reward = env.step(action)
        rewards.append(reward)
    return torch.stack(observations), torch.stack(actions), torch.stack(rewards)


def main(iterations=40):
    torch.manual_seed(0)
    env = Recall(copies=32, cues=6, length=32)
    model = ActorCritic(7, 6)
    learner = Learner(model)
    for i in range(iterations):
        observations, actions, rewards = rollout(env, model)
        learner.train(observations, actions, rewards, epochs=4)
        if i % 20 == 0:
            print(f"iteration {i}: reward {rewards.mean().item():.3f}")


if __name__ == "__main__":
    main()
