"""PPO for a small language model: sample continuations, score them, and train policy and value head on them."""

import dataclasses

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass
class PPOConfig:
    vocab: int = 60
    dim: int = 32
    window: int = 6
    prompt: int = 8
    response: int = 72
    rollout: int = 32
    batch: int = 8
    ppo_epochs: int = 4
    rounds: int = 20
    gamma: float = 1.0
    lam: float = 0.95
    cliprange: float = 0.2
    kl_coef: float = 0.05
    lr: float = 1e-3


class PolicyWithValue(nn.Module):
    """Each token is predicted from the last few."""

    def __init__(self, config, width=192):
        super().__init__()
        self.window = config.window
        self.embed = nn.Embedding(config.vocab, config.dim)
        first = nn.Linear(config.window * config.dim, width)
        self.body = nn.Sequential(first, nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.lm_head, self.v_head = nn.Linear(width, config.vocab), nn.Linear(width, 1)

    def forward(self, tokens):
        padded = F.pad(self.embed(tokens), (0, 0, self.window - 1, 0))
        hidden = self.body(padded.unfold(1, self.window, 1).flatten(2))
        return self.lm_head(hidden), self.v_head(hidden).squeeze(2)


def token_logprobs(logits, tokens):
    return F.log_softmax(logits, 2).gather(2, tokens[..., None]).squeeze(2)


def reward_fn(responses):
    """Tokens should go up by one, over and over."""
    return (responses.diff(dim=1) == 1).float().mean(1)


def whiten(values):
    return (values - values.mean()) * torch.rsqrt(values.var() + 1e-8)


class PPOTrainer:
    def __init__(self, config):
        self.config = config
        self.model, self.reference = PolicyWithValue(config), PolicyWithValue(config)
        self.reference.load_state_dict(self.model.state_dict())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)

    @torch.no_grad()
    def make_experience(self):
        c = self.config
        prompts = torch.randint(0, c.vocab, (c.rollout, c.prompt))
        sequence = prompts
        for _ in range(c.response):
            logits, _ = self.model(sequence[:, -c.window :])
            sequence = torch.cat([sequence, torch.multinomial(logits[:, -1].softmax(1), 1)], 1)
        logprobs, values = self.forward_model(self.model, sequence)
        reference, _ = self.forward_model(self.reference, sequence)
        scores = reward_fn(sequence[:, c.prompt :])
        rewards = -c.kl_coef * (logprobs - reference)
        rewards[:, -1] += scores
        self.mean_score = scores.mean().item()
        advantages, returns = self.get_advantages_and_returns(values, rewards)
        parts = {"sequence": sequence, "logprobs": logprobs, "values": values}
        return {**parts, "advantages": advantages, "returns": returns}

    def forward_model(self, model, sequence):
        logits, values = model(sequence[:, :-1])
        start = self.config.prompt - 1
        return token_logprobs(logits[:, start:], sequence[:, start + 1 :]), values[:, start:]

    def get_advantages_and_returns(self, values, rewards):
        c, last, reversed_advantages = self.config, 0, []
        for t in reversed(range(rewards.shape[1])):
            following = values[:, t + 1] if t < rewards.shape[1] - 1 else 0.0
            delta = rewards[:, t] + c.gamma * following - values[:, t]
            last = delta + c.gamma * c.lam * last
            reversed_advantages.append(last)
        advantages = torch.stack(reversed_advantages[::-1], 1)
        return advantages, advantages + values

    def loss(self, batch):
        c = self.config
        logprobs, values = self.forward_model(self.model, batch["sequence"])
        advantages, returns = whiten(batch["advantages"]), batch["returns"]
        clipped_values = values.clamp(batch["values"] - c.cliprange, batch["values"] + c.cliprange)
        value_loss = 0.5 * torch.max((values - returns) ** 2, (clipped_values - returns) ** 2).mean()
        ratio = torch.exp(logprobs - batch["logprobs"])
        policy_loss = -torch.min(advantages * ratio, advantages * ratio.clamp(1 - c.cliprange, 1 + c.cliprange)).mean()
        return policy_loss + 0.5 * value_loss

    def learn(self):
        c = self.config
        for step in range(c.rounds):
            experience = self.make_experience()
            for _ in range(c.ppo_epochs):
                for index in torch.randperm(c.rollout).split(c.batch):
                    loss = self.loss({name: part[index] for name, part in experience.items()})
                    self.optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                    self.optimizer.step()
            print(f"round {step}: score {self.mean_score:.4f} loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    PPOTrainer(PPOConfig()).learn()
