"""Fine-tuning a small causal language model on instructions; the loss counts on the answers alone."""

import json
import os
import random
import tempfile
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

PAD, BOS, SEP, EOS = 0, 1, 2, 3
LETTERS = "abcdefghijklmnopqrstuvwxyz 0123456789"


@dataclass
class TrainingArguments:
    per_device_train_batch_size: int = 16
    per_device_eval_batch_size: int = 32
    max_steps: int = 240
    learning_rate: float = 6e-4
    warmup_steps: int = 10
    eval_steps: int = 10
    logging_steps: int = 40
    seed: int = 12


def write_instructions(path, count, seed):
    rng = random.Random(seed)
    with open(path, "w") as file:
        for _ in range(count):
            word = "".join(rng.choices(LETTERS[:26], k=rng.randint(18, 22)))
            task = rng.choice(["copy", "turn", "sort"])
            answer = {"copy": word, "turn": word[::-1], "sort": "".join(sorted(word))}[task]
            file.write(json.dumps({"instruction": f"{task} {word}", "response": answer}) + "\n")


class InstructionDataset(Dataset):
    def __init__(self, path, block_size):
        with open(path) as file:
            records = [json.loads(line) for line in file]
        self.ids = torch.full((len(records), block_size), PAD)
        self.labels = torch.full((len(records), block_size), -100)
        for row, record in enumerate(records):
            prompt = [BOS, *self.encode(record["instruction"]), SEP]
            answer = [*self.encode(record["response"]), EOS]
            self.ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
            self.labels[row, len(prompt) : len(prompt) + len(answer)] = torch.tensor(answer)

    @staticmethod
    def encode(text):
        return [LETTERS.index(letter) + 4 for letter in text]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class CausalLM(nn.Module):
    def __init__(self, vocab, block_size, dim=128, heads=4, layers=3):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, dim), nn.Embedding(block_size, dim)
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab)

    def forward(self, input_ids, labels):
        x = self.tokens(input_ids) + self.positions.weight[: input_ids.shape[1]]
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)


class Trainer:
    def __init__(self, model, args, train_dataset, eval_dataset):
        self.model, self.args = model, args
        self.train_loader = DataLoader(
            train_dataset,
            args.per_device_train_batch_size,
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(args.seed),
        )
        self.eval_loader = DataLoader(eval_dataset, args.per_device_eval_batch_size)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=True)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / args.warmup_steps)
        )

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        losses = [self.model(**batch) for batch in self.eval_loader]
        self.model.train()
        return torch.stack(losses).mean().item()

    def train(self):
        step, logged = 0, torch.zeros(())
        while True:
            for batch in self.train_loader:
                loss = self.model(**batch)
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
                logged += loss.detach()
                step += 1
                if step % self.args.logging_steps == 0:
                    print({"step": step, "loss": round(logged.item() / self.args.logging_steps, 4)})
                    logged.zero_()
                if step % self.args.eval_steps == 0:
                    print({"step": step, "eval_loss": round(self.evaluate(), 4)})
                if step == self.args.max_steps:
                    return


def main():
    args = TrainingArguments()
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        for name, count in (("train", 2000), ("eval", 160)):
            write_instructions(os.path.join(folder, f"{name}.jsonl"), count, seed=count)
        train, held = (InstructionDataset(os.path.join(folder, f"{n}.jsonl"), 52) for n in ("train", "eval"))
    model = CausalLM(len(LETTERS) + 4, 52)
    Trainer(model, args, train, held).train()


if __name__ == "__main__":
    main()
