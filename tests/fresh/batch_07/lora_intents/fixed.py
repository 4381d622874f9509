"""Intent classification: low-rank adapters inside a frozen text encoder."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class LoRALinear(nn.Linear):
    """A frozen linear layer with a trainable low-rank update."""

    def __init__(self, in_features, out_features, r=4, lora_alpha=8):
        super().__init__(in_features, out_features)
        self.lora_A = nn.Parameter(torch.empty(r, in_features))
        self.lora_B = nn.Parameter(torch.zeros(out_features, r))
        self.scaling = lora_alpha / r
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        return F.linear(x, self.weight, self.bias) + self.scaling * F.linear(F.linear(x, self.lora_A), self.lora_B)


class SelfAttention(nn.Module):
    def __init__(self, width, heads, r):
        super().__init__()
        self.heads = heads
        self.query = LoRALinear(width, width, r)
        self.key = nn.Linear(width, width)
        self.value = LoRALinear(width, width, r)
        self.output = LoRALinear(width, width, r)

    def forward(self, x, mask):
        b, t, c = x.shape
        q, k, v = (layer(x).view(b, t, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output(y.transpose(1, 2).reshape(b, t, c))


class EncoderLayer(nn.Module):
    def __init__(self, width, heads, r):
        super().__init__()
        self.attention = SelfAttention(width, heads, r)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.intermediate = LoRALinear(width, 2 * width, r)
        self.down = LoRALinear(2 * width, width, r)

    def forward(self, x, mask):
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.down(F.gelu(self.intermediate(x))))


class IntentModel(nn.Module):
    def __init__(self, vocabulary, intents, width=512, layers=2, heads=8, r=4, length=24):
        super().__init__()
        self.embeddings = nn.Embedding(vocabulary, width, padding_idx=0)
        self.positions = nn.Embedding(length, width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads, r) for _ in range(layers))
        self.classifier = nn.Linear(width, intents)

    def forward(self, ids):
        mask = (ids != 0)[:, None, None, :]
        x = self.embeddings(ids) + self.positions.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, mask)
        return self.classifier(x[:, 0])


def mark_only_lora_as_trainable(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name or name.startswith("classifier"))


def make_utterances(count, vocabulary, intents, length, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(intents, (count,), generator=generator)
    ids = torch.randint(2, vocabulary, (count, length), generator=generator)
    keyword = (torch.rand(count, length, generator=generator) < 0.25) & (torch.arange(length) > 0)
    ids = torch.where(keyword, 2 + labels[:, None] * 9 + torch.randint(9, ids.shape, generator=generator), ids)
    ids[:, 0] = 1
    lengths = torch.randint(length // 2, length + 1, (count, 1), generator=generator)
    return TensorDataset(ids.masked_fill(torch.arange(length) >= lengths, 0), labels)


def train(args):
    dataset = make_utterances(args.utterances, args.vocabulary, args.intents, args.length, seed=50)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True)
    model = IntentModel(args.vocabulary, args.intents, length=args.length, r=args.rank)
    mark_only_lora_as_trainable(model)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=args.lr)
    for epoch in range(args.epochs):
        for step, (ids, labels) in enumerate(loader):
            loss = F.cross_entropy(model(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 25 == 0:
                print(f"epoch {epoch} step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--utterances", type=int, default=2560)
    parser.add_argument("--vocabulary", type=int, default=2000)
    parser.add_argument("--intents", type=int, default=12)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=2e-3)
    torch.manual_seed(50)
    train(parser.parse_args())
