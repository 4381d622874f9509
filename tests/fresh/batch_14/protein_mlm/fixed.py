"""Masked language model over protein sequences cut into overlapping words of three residues."""

import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

RESIDUES = 20
PAD, MASK, SPECIAL = 0, 1, 2


@dataclass
class ModelConfig:
    vocabulary: int = RESIDUES**3 // 2 + SPECIAL
    length: int = 96
    dim: int = 64
    heads: int = 4
    layers: int = 2
    dropout: float = 0.1


def make_proteins(count, config, seed):
    """Families that share motifs, each member with some mutations."""
    generator = torch.Generator().manual_seed(seed)
    words = config.vocabulary - SPECIAL
    families = torch.randint(words, (60, config.length), generator=generator)
    proteins = families[torch.randint(60, (count,), generator=generator)]
    mutated = torch.rand(proteins.shape, generator=generator) < 0.1
    proteins = torch.where(mutated, torch.randint(words, proteins.shape, generator=generator), proteins) + SPECIAL
    lengths = torch.randint(config.length // 2, config.length + 1, (count, 1), generator=generator)
    return torch.where(torch.arange(config.length) < lengths, proteins, PAD)


def mask_tokens(tokens, probability, vocabulary):
    chosen = (torch.rand(tokens.shape) < probability) & (tokens != PAD)
    labels = torch.where(chosen, tokens, -100)
    action = torch.rand(tokens.shape)
    inputs = torch.where(chosen & (action < 0.8), MASK, tokens)
    random = torch.randint(SPECIAL, vocabulary, tokens.shape)
    return torch.where(chosen & (action >= 0.9), random, inputs), labels


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.dim, padding_idx=PAD)
        self.positions = nn.Embedding(config.length, config.dim)
        self.norm = nn.LayerNorm(config.dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1])
        return self.dropout(self.norm(self.tokens(tokens) + self.positions(positions)))


class PredictionHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.dim, config.dim)
        self.norm = nn.LayerNorm(config.dim)
        self.decoder = nn.Linear(config.dim, config.vocabulary)

    def forward(self, hidden):
        return self.decoder(self.norm(F.gelu(self.dense(hidden))))


class ProteinMaskedLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings = Embeddings(config)
        layer = nn.TransformerEncoderLayer(config.dim, config.heads, 4 * config.dim, config.dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.head = PredictionHead(config)
        self.head.decoder.weight = self.embeddings.tokens.weight
        nn.init.normal_(self.embeddings.tokens.weight, std=0.02)

    def forward(self, tokens, labels):
        hidden = self.encoder(self.embeddings(tokens), src_key_padding_mask=tokens == PAD)
        masked = labels != -100
        return F.cross_entropy(self.head(hidden[masked]), labels[masked])


def perplexity(model, proteins, args, config):
    model.eval()
    losses = []
    generator_state = torch.get_rng_state()
    with torch.no_grad():
        for batch in proteins.split(args.batch_size):
            losses.append(model(*mask_tokens(batch, args.probability, config.vocabulary)))
    torch.set_rng_state(generator_state)
    model.train()
    return torch.stack(losses).mean().exp().item()


def train(args):
    torch.manual_seed(args.seed)
    config = ModelConfig()
    proteins = make_proteins(args.proteins, config, args.seed)
    train_set, valid_set = proteins[args.held_out :], proteins[: args.held_out]
    model = ProteinMaskedLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=0.01)
    steps = args.epochs * (len(train_set) // args.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 20, 1 - step / (steps + 1)))
    step = 0
    for epoch in range(args.epochs):
        for index in torch.randperm(len(train_set)).split(args.batch_size):
            if len(index) < args.batch_size:
                continue
            inputs, labels = mask_tokens(train_set[index], args.probability, config.vocabulary)
            loss = model(inputs, labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if step % 25 == 0:
                print(f"step {step}: loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch}: perplexity {perplexity(model, valid_set, args, config):.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proteins", type=int, default=500)
    parser.add_argument("--held-out", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--probability", type=float, default=0.15)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=6)
    train(parser.parse_args())
