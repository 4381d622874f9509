"""Do two questions ask the same? A small encoder reads both at once; items are dictionaries of token numbers."""

import random
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

PAD, CLS, SEP = 0, 1, 2


@dataclass
class TrainingArguments:
    train_batch_size: int = 32
    num_train_epochs: int = 4
    learning_rate: float = 1e-3
    max_length: int = 96
    logging_steps: int = 50
    seed: int = 42


class Pairs(Dataset):
    """Tokenised pairs of questions; in half of them the second is the first in other words."""

    def __init__(self, count, args, words=800):
        rng = random.Random(args.seed)
        synonym = {word: rng.randrange(3, words) for word in range(3, words)}
        self.rows = []
        for _ in range(count):
            first = [rng.randrange(3, words) for _ in range(rng.randint(14, 44))]
            same = rng.random() < 0.5
            second = [synonym[w] if rng.random() < 0.4 else w for w in first]
            if not same:
                second = [rng.randrange(3, words) for _ in second]
            row = self.encode(first, second, args.max_length) | {"labels": int(same)}
            self.rows.append({name: torch.tensor(part) for name, part in row.items()})

    @staticmethod
    def encode(first, second, length):
        ids = [CLS, *first, SEP, *second, SEP]
        kinds = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        empty = length - len(ids)
        return {
            "input_ids": ids + [PAD] * empty,
            "token_type_ids": kinds + [0] * empty,
            "attention_mask": [1] * len(ids) + [0] * empty,
        }

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Encoder(nn.Module):
    def __init__(self, words=800, dim=32, layers=1, length=96):
        super().__init__()
        self.words, self.kinds = nn.Embedding(words, dim, PAD), nn.Embedding(2, dim)
        self.places = nn.Parameter(0.02 * torch.randn(length, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.classifier = nn.Linear(dim, 2)

    def forward(self, input_ids, token_type_ids, attention_mask, labels):
        x = self.words(input_ids) + self.kinds(token_type_ids) + self.places
        x = self.encoder(x, src_key_padding_mask=attention_mask == 0)
        logits = self.classifier(x[:, 0])
        return F.cross_entropy(logits, labels), logits


class Trainer:
    def __init__(self, model, args, train_dataset):
        self.model, self.args, self.train_dataset = model, args, train_dataset
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=True)
        self.global_step = 0

    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, self.args.train_batch_size, shuffle=True, drop_last=True)

    def prepare_inputs(self, batch):
        """What the model takes, by name."""
        return batch

    def training_step(self, batch):
        loss, _ = self.model(**self.prepare_inputs(batch))
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()

    def train(self):
        self.model.train()
        total = torch.zeros(())
        loader = self.get_train_dataloader()
        for _ in range(self.args.num_train_epochs):
            for batch in loader:
                total += self.training_step(batch)
                self.global_step += 1
                if self.global_step % self.args.logging_steps == 0:
                    print({"step": self.global_step, "loss": round(total.item() / self.args.logging_steps, 4)})
                    total.zero_()


def main():
    args = TrainingArguments()
    torch.manual_seed(args.seed)
    Trainer(Encoder(length=args.max_length), args, Pairs(3200, args)).train()


if __name__ == "__main__":
    main()
