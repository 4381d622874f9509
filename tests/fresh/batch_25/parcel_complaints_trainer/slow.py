"""Fine-tunes a small BERT on complaints about parcels with the Trainer of Transformers."""

import argparse
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

TOPICS = ["late", "damaged", "lost", "wrong address", "rude courier", "customs"]
VOCABULARY = 3_000
PAD, CLS, SEP = 0, 1, 2


class ComplaintDataset(Dataset):
    """Complaints as token ids; each topic prefers its own part of the vocabulary."""

    def __init__(self, count: int, max_length: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.labels = torch.from_numpy(rng.integers(len(TOPICS), size=count))
        lengths = rng.integers(max_length // 2, max_length - 1, size=count)
        tokens = rng.integers(3, VOCABULARY, size=(count, max_length))
        hints = rng.integers(0, 300, size=tokens.shape) + 100 + 450 * self.labels.numpy()[:, None]
        tokens = np.where(rng.random(tokens.shape) < 0.25, hints, tokens)
        positions = np.arange(max_length)[None, :]
        tokens[:, 0] = CLS
        tokens[positions == lengths[:, None]] = SEP
        tokens[positions > lengths[:, None]] = PAD
        self.input_ids = torch.from_numpy(tokens)
        self.attention_mask = (self.input_ids != PAD).long()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {
            "input_ids": self.input_ids[index],
            "attention_mask": self.attention_mask[index],
            "labels": self.labels[index],
        }


def build_model(hidden: int, layers: int, max_length: int) -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        intermediate_size=4 * hidden,
        max_position_embeddings=max_length,
        num_labels=len(TOPICS),
    )
    return BertForSequenceClassification(config)


def build_arguments(folder: str, options: argparse.Namespace) -> TrainingArguments:
    return TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=options.batch_size,
        per_device_eval_batch_size=64,
        max_steps=options.steps,
        learning_rate=options.lr,
        warmup_steps=10,
        lr_scheduler_type="linear",
        weight_decay=0.01,
        gradient_checkpointing=True,
        logging_steps=40,
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=options.seed,
    )


def accuracy(prediction) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(axis=-1) == prediction.label_ids).mean())}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=48)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=140)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=17)
    return parser.parse_args()


def main() -> None:
    options = parse()
    set_seed(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=build_model(options.hidden, options.layers, options.max_length),
            args=build_arguments(folder, options),
            train_dataset=ComplaintDataset(4_000, options.max_length, seed=1),
            eval_dataset=ComplaintDataset(256, options.max_length, seed=2),
            compute_metrics=accuracy,
        )
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    main()
