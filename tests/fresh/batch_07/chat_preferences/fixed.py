"""Direct preference optimisation of a small decoder on prompts with a chosen and a rejected answer."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class DPOConfig:
    vocab_size: int = 4000
    width: int = 96
    layers: int = 2
    heads: int = 4
    max_prompt_length: int = 72
    max_completion_length: int = 24
    pairs: int = 960
    per_device_batch_size: int = 8
    learning_rate: float = 3e-4
    beta: float = 0.1
    logging_steps: int = 20


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class CausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        length = config.max_prompt_length + config.max_completion_length
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.positions = nn.Embedding(length, config.width)
        self.layers = nn.Sequential(*(Layer(config) for _ in range(config.layers)), nn.LayerNorm(config.width))
        self.lm_head = nn.Linear(config.width, config.vocab_size, bias=False)

    def forward(self, ids, logits_to_keep=0):
        hidden = self.layers(self.tokens(ids) + self.positions.weight[: ids.shape[1]])
        return self.lm_head(hidden[:, -logits_to_keep:])


def make_preferences(config, seed):
    """Good answers repeat the prompt's words; bad ones are arbitrary."""
    generator = torch.Generator().manual_seed(seed)
    size = (config.pairs, config.max_prompt_length)
    prompts = torch.randint(config.vocab_size, size, generator=generator)
    picks = torch.randint(size[1], (config.pairs, config.max_completion_length), generator=generator)
    chosen = prompts.gather(1, picks)
    rejected = torch.randint(config.vocab_size, chosen.shape, generator=generator)
    return TensorDataset(torch.cat([prompts, chosen], 1), torch.cat([prompts, rejected], 1))


class DPOTrainer:
    def __init__(self, model, config, dataset):
        self.model, self.config = model, config
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate)
        chosen, rejected = dataset.tensors
        reference = TensorDataset(chosen, rejected)
        chosen_ref, rejected_ref = self.precompute_ref_logps(DataLoader(reference, batch_size=32))
        self.loader = DataLoader(
            TensorDataset(chosen, rejected, chosen_ref, rejected_ref), config.per_device_batch_size, shuffle=True
        )

    def sequence_logps(self, ids):
        n = self.config.max_completion_length
        logits = self.model(ids, logits_to_keep=n + 1)[:, :-1]
        labels = ids[:, -n:]
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return -losses.view(labels.shape).sum(1)

    @torch.no_grad()
    def precompute_ref_logps(self, loader):
        pairs = [self.sequence_logps(torch.cat(batch)).chunk(2) for batch in loader]
        return tuple(torch.cat(logps) for logps in zip(*pairs))

    def compute_loss(self, chosen, rejected, chosen_ref, rejected_ref):
        chosen_logps, rejected_logps = self.sequence_logps(torch.cat([chosen, rejected])).chunk(2)
        margins = (chosen_logps - chosen_ref) - (rejected_logps - rejected_ref)
        return -F.logsigmoid(self.config.beta * margins).mean(), margins.detach()

    def train(self):
        for step, batch in enumerate(self.loader, 1):
            loss, margins = self.compute_loss(*batch)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            if step % self.config.logging_steps == 0:
                accuracy = (margins > 0).float().mean().item()
                print({"step": step, "loss": round(loss.item(), 4), "accuracy": round(accuracy, 3)})


if __name__ == "__main__":
    torch.manual_seed(77)
    config = DPOConfig()
    DPOTrainer(CausalLM(config), config, make_preferences(config, seed=77)).train()
