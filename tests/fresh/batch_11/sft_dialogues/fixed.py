"""Supervised fine-tuning of a small causal language model on dialogues; only answers count in the loss."""

import torch
import torch.nn.functional as F
from bpe import Tokenizer, make_dialogues
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Dialogues(Dataset):
    def __init__(self, pairs, tokenizer, max_length):
        self.pairs = [(tokenizer.encode(question), tokenizer.encode(answer)) for question, answer in pairs]
        self.max_length = max_length

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        prompt, answer = self.pairs[index]
        ids = (prompt + answer)[: self.max_length]
        labels = [-100] * min(len(prompt), self.max_length) + ids[len(prompt) :]
        return torch.tensor(ids), torch.tensor(labels)


def collate(items):
    ids, labels = zip(*items, strict=True)
    pad = nn.utils.rnn.pad_sequence
    return pad(ids, batch_first=True), pad(labels, batch_first=True, padding_value=-100)


class Decoder(nn.Module):
    def __init__(self, vocabulary, width=64, heads=4, layers=1, length=128):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, norm_first=True, dropout=0.0)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        length = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        h = self.token(ids) + self.place(torch.arange(length))
        return self.head(self.blocks(h, mask=mask, is_causal=True))


def main():
    torch.manual_seed(0)
    pairs = make_dialogues(480, seed=5)
    tokenizer = Tokenizer([answer for _, answer in pairs[:60]], merges=120)
    data = Dialogues(pairs, tokenizer, max_length=96)
    loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate)
    model = Decoder(len(tokenizer.ids) + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(11):
        for step, (ids, labels) in enumerate(loader):
            logits = model(ids)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 30 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
