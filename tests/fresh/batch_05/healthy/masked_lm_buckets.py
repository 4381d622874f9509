"""A masked language model on sentences of very different length, in batches of about as many tokens each."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCABULARY, PAD, MASK = 1200, 0, 1


class Sentences(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        lengths = (8 + 88 * torch.rand(count, generator=generator).pow(2)).long()
        topics = torch.randint(0, 40, (count,), generator=generator)
        words = torch.randint(0, 29, (int(lengths.sum()),), generator=generator)
        ids = 2 + torch.repeat_interleave(topics, lengths) * 29 + words
        self.sentences = ids.split(lengths.tolist())
        self.lengths = lengths.tolist()

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, index):
        return self.sentences[index]


class TokenBatches:
    """Sorts the sentences by length, cuts where a batch would hold too many tokens, and shuffles the batches."""

    def __init__(self, lengths, max_tokens):
        self.batches = []
        rows = []
        for row in sorted(range(len(lengths)), key=lengths.__getitem__):
            if rows and (len(rows) + 1) * lengths[row] > max_tokens:
                self.batches.append(rows)
                rows = []
            rows.append(row)
        self.batches.append(rows)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for index in torch.randperm(len(self.batches)).tolist():
            yield self.batches[index]


def collate(sentences):
    tokens = pad_sequence(sentences, batch_first=True, padding_value=PAD)
    chosen = (torch.rand(tokens.shape) < 0.15) & (tokens != PAD)
    return tokens.masked_fill(chosen, MASK), chosen.flatten().nonzero().squeeze(1), tokens[chosen]


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(attended.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.norm2(x))


class MaskedLM(nn.Module):
    def __init__(self, dim=96, heads=4, depth=3, longest=100):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, dim)
        self.position = nn.Embedding(longest, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens, positions):
        """Logits at the flat positions alone."""
        mask = (tokens != PAD)[:, None, None]
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x).flatten(0, 1)[positions] @ self.token.weight.t()


def main():
    torch.manual_seed(40)
    data = Sentences(1900, seed=41)
    loader = DataLoader(data, batch_sampler=TokenBatches(data.lengths, max_tokens=1536), collate_fn=collate)
    model = MaskedLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    for epoch in range(3):
        total = torch.zeros(())
        for tokens, positions, wanted in loader:
            loss = F.cross_entropy(model(tokens, positions), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()
