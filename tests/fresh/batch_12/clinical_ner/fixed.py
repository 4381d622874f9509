"""Named entities in clinical notes: a small BERT fine-tuned with the Trainer of transformers."""

import os
import random
import tempfile
from dataclasses import dataclass, field

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments, set_seed

TAGS = ["O", "B-DRUG", "I-DRUG", "B-DOSE", "I-DOSE", "B-PROBLEM", "I-PROBLEM"]
PAD, CLS, SEP = 0, 1, 2


@dataclass
class NerArguments:
    notes: int = 2400
    vocab: int = 3000
    max_seq_length: int = 64
    hidden: int = 96
    layers: int = 3
    batch_size: int = 16
    epochs: float = 1.0
    seed: int = 13
    label_ignore: int = -100
    entity_words: dict = field(default_factory=lambda: {"DRUG": (10, 300), "DOSE": (300, 380), "PROBLEM": (380, 900)})


def write_note(rng, args):
    """Words as numbers with their tags. Sentences of notes are short; a few are long."""
    words, tags = [], []
    length = max(6, min(int(rng.lognormvariate(3.1, 0.4)), args.max_seq_length - 2))
    while len(words) < length:
        if rng.random() < 0.2:
            kind, (low, high) = rng.choice(list(args.entity_words.items()))
            span = rng.randint(1, 3)
            words += [rng.randrange(low, high) for _ in range(span)]
            tags += [f"B-{kind}"] + [f"I-{kind}"] * (span - 1)
        else:
            words.append(rng.randrange(900, args.vocab))
            tags.append("O")
    return words[:length], tags[:length]


class NotesDataset(Dataset):
    def __init__(self, count, args, seed):
        rng = random.Random(seed)
        label_of = {tag: number for number, tag in enumerate(TAGS)}
        self.features = []
        for _ in range(count):
            words, tags = write_note(rng, args)
            ignored = [args.label_ignore]
            self.features.append(
                {"input_ids": [CLS, *words, SEP], "labels": ignored + [label_of[tag] for tag in tags] + ignored}
            )

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        return self.features[index]


class NerCollator:
    """Pads ids, attention mask and labels, and makes tensors of them."""

    def __init__(self, args):
        self.args = args

    def __call__(self, features):
        length = max(len(feature["input_ids"]) for feature in features)
        batch = {"input_ids": [], "attention_mask": [], "labels": []}
        for feature in features:
            missing = length - len(feature["input_ids"])
            batch["input_ids"].append(feature["input_ids"] + [PAD] * missing)
            batch["attention_mask"].append([1] * len(feature["input_ids"]) + [0] * missing)
            batch["labels"].append(feature["labels"] + [self.args.label_ignore] * missing)
        return {name: torch.tensor(values) for name, values in batch.items()}


def token_f1(predictions):
    """Share of tokens of entities that were found, and of those found that are right."""
    scores, labels = predictions.predictions.argmax(-1), predictions.label_ids
    seen = labels >= 0
    found, wanted = (scores > 0) & seen, (labels > 0) & seen
    right = (found & wanted & (scores == labels)).sum()
    precision, recall = right / max(found.sum(), 1), right / max(wanted.sum(), 1)
    return {"precision": float(precision), "recall": float(recall)}


def build_model(args):
    config = BertConfig(
        vocab_size=args.vocab,
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=4,
        intermediate_size=3 * args.hidden,
        max_position_embeddings=args.max_seq_length,
        num_labels=len(TAGS),
    )
    return BertForTokenClassification(config)


def main():
    args = NerArguments()
    set_seed(args.seed)
    train, dev = NotesDataset(args.notes, args, args.seed), NotesDataset(160, args, args.seed + 1)
    with tempfile.TemporaryDirectory() as directory:
        trainer = Trainer(
            model=build_model(args),
            args=TrainingArguments(
                output_dir=directory,
                num_train_epochs=args.epochs,
                per_device_train_batch_size=args.batch_size,
                per_device_eval_batch_size=2 * args.batch_size,
                learning_rate=5e-4,
                warmup_steps=16,
                weight_decay=0.01,
                logging_steps=40,
                eval_strategy="epoch",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
                remove_unused_columns=False,
            ),
            train_dataset=train,
            eval_dataset=dev,
            data_collator=NerCollator(args),
            compute_metrics=token_f1,
        )
        trainer.train()


if __name__ == "__main__":
    main()
