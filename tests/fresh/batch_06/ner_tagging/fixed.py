"""Named entities: fine-tuning a small encoder on sentences split into words, in the manner of a trainer script."""

import json
import os
import random
import tempfile
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LABELS = ["O", "B-PER", "I-PER", "B-LOC", "B-ORG"]
IGNORE = -100


@dataclass
class TrainingArguments:
    per_device_train_batch_size: int = 16
    num_train_epochs: int = 2
    learning_rate: float = 5e-4
    max_grad_norm: float = 1.0
    logging_steps: int = 20
    max_length: int = 128


def write_sentences(path, count, seed):
    rng = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            words, tags = [], []
            for _ in range(int(rng.lognormvariate(3.4, 0.15))):
                kind = rng.choices(range(4), weights=(20, 2, 2, 1))[0]
                if kind == 1:
                    words += [f"name{rng.randrange(300)}", f"family{rng.randrange(300)}"]
                    tags += ["B-PER", "I-PER"]
                else:
                    words.append(f"{('word', '', 'city', 'firm')[kind]}{rng.randrange(600)}")
                    tags.append(("O", "", "B-LOC", "B-ORG")[kind])
            file.write(json.dumps({"tokens": words, "ner_tags": tags}) + "\n")


class Tokenizer:
    """Whole words; id 0 is padding, 1 is unknown."""

    def __init__(self, vocabulary):
        self.ids = {word: number for number, word in enumerate(sorted(vocabulary), start=2)}

    def __len__(self):
        return len(self.ids) + 2

    def __call__(self, words, max_length):
        return [self.ids.get(word, 1) for word in words[:max_length]]


class NerDataset(Dataset):
    def __init__(self, path, max_length):
        with open(path, encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        self.tokenizer = Tokenizer({word for record in records for word in record["tokens"]})
        ids = {label: number for number, label in enumerate(LABELS)}
        self.features = [
            {
                "input_ids": self.tokenizer(record["tokens"], max_length),
                "labels": [ids[tag] for tag in record["ner_tags"][:max_length]],
            }
            for record in records
        ]

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        return self.features[index]


class DataCollatorForTokenClassification:
    def __init__(self, padding="longest", max_length=None):
        self.padding, self.max_length = padding, max_length

    def __call__(self, features):
        length = max(len(feature["input_ids"]) for feature in features)
        if self.padding == "max_length":
            length = self.max_length
        input_ids = torch.zeros(len(features), length, dtype=torch.long)
        labels = torch.full((len(features), length), IGNORE)
        for row, feature in enumerate(features):
            size = len(feature["input_ids"])
            input_ids[row, :size] = torch.tensor(feature["input_ids"])
            labels[row, :size] = torch.tensor(feature["labels"])
        return {"input_ids": input_ids, "attention_mask": input_ids != 0, "labels": labels}


class EncoderForTokenClassification(nn.Module):
    def __init__(self, vocab_size, hidden=128, heads=4, layers=3, max_length=128):
        super().__init__()
        self.words = nn.Embedding(vocab_size, hidden, padding_idx=0)
        self.positions = nn.Embedding(max_length, hidden)
        layer = nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.classifier = nn.Linear(hidden, len(LABELS))

    def forward(self, input_ids, attention_mask, labels):
        x = self.words(input_ids) + self.positions.weight[: input_ids.shape[1]]
        logits = self.classifier(self.encoder(x, src_key_padding_mask=~attention_mask))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)
        return loss, logits


class Trainer:
    def __init__(self, model, args, train_dataset, data_collator):
        self.model, self.args = model, args
        self.loader = DataLoader(
            train_dataset, args.per_device_train_batch_size, shuffle=True, collate_fn=data_collator, drop_last=True
        )
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=True)

    def training_step(self, inputs):
        loss, _ = self.model(**inputs)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def train(self):
        step, logged = 0, torch.zeros(())
        for epoch in range(self.args.num_train_epochs):
            for inputs in self.loader:
                logged += self.training_step(inputs)
                step += 1
                if step % self.args.logging_steps == 0:
                    print({"epoch": epoch, "step": step, "loss": round(logged.item() / self.args.logging_steps, 4)})
                    logged.zero_()


def main():
    torch.manual_seed(1)
    args = TrainingArguments()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.jsonl")
        write_sentences(path, 1280, seed=1)
        dataset = NerDataset(path, args.max_length)
    model = EncoderForTokenClassification(len(dataset.tokenizer), max_length=args.max_length)
    collator = DataCollatorForTokenClassification(padding="longest")
    Trainer(model, args, dataset, collator).train()


if __name__ == "__main__":
    main()
