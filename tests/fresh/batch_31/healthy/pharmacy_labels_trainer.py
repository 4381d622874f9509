"""Mark drugs, doses and times on labels of a pharmacy: token classification with DistilBERT and the Trainer."""

import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForTokenClassification, Trainer, TrainingArguments, set_seed

TAGS = ["O", "B-DRUG", "I-DRUG", "B-DOSE", "I-DOSE", "B-TIME"]
PAD, FIRST_WORD = 0, 4


@dataclass
class LabelConfig:
    vocab: int = 2000
    length: int = 64
    labels: int = 1600
    dim: int = 160
    layers: int = 3
    heads: int = 4
    batch_size: int = 16
    epochs: float = 1.5
    lr: float = 6e-4
    seed: int = 59


def write_labels(config):
    """Word numbers and tags, all labels at once: each tag has words of its own, and some are shared."""
    rng = np.random.default_rng(config.seed)
    shape = (config.labels, config.length)
    tags = np.zeros(shape, np.int64)
    for first, second in ((1, 2), (3, 4), (5, None)):
        starts = rng.integers(1, config.length - 2, (config.labels, 3))
        np.put_along_axis(tags, starts, first, axis=1)
        if second is not None:
            np.put_along_axis(tags, starts + 1, second, axis=1)
    own = FIRST_WORD + 200 * (tags + 1) + rng.integers(0, 200, shape)
    shared = FIRST_WORD + rng.integers(0, config.vocab - FIRST_WORD, shape)
    words = np.where(rng.random(shape) < 0.85, own, shared)
    lengths = rng.integers(config.length // 2, config.length + 1, (config.labels, 1))
    padded = np.arange(config.length) >= lengths
    words[padded] = PAD
    tags[padded] = -100
    return words, tags


class LabelDataset(Dataset):
    def __init__(self, words, tags):
        self.words = torch.from_numpy(words)
        self.mask = (self.words != PAD).long()
        self.tags = torch.from_numpy(tags)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "attention_mask": self.mask[index], "labels": self.tags[index]}


def build_model(config):
    return DistilBertForTokenClassification(
        DistilBertConfig(
            vocab_size=config.vocab,
            max_position_embeddings=config.length,
            dim=config.dim,
            hidden_dim=3 * config.dim,
            n_layers=config.layers,
            n_heads=config.heads,
            num_labels=len(TAGS),
            pad_token_id=PAD,
            attn_implementation="sdpa",
        )
    )


def keep_best_tag(logits, labels):
    return logits.argmax(dim=-1)


def token_scores(prediction):
    kept = prediction.label_ids != -100
    right = (prediction.predictions == prediction.label_ids)[kept]
    marked = prediction.label_ids[kept] > 0
    return {"accuracy": float(right.mean()), "recall": float(right[marked].mean())}


def main():
    config = LabelConfig()
    set_seed(config.seed)
    words, tags = write_labels(config)
    held_out = config.labels // 8
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=build_model(config),
            args=TrainingArguments(
                output_dir=folder,
                use_cpu=True,
                optim="adamw_torch_fused",
                learning_rate=config.lr,
                per_device_train_batch_size=config.batch_size,
                per_device_eval_batch_size=4 * config.batch_size,
                num_train_epochs=config.epochs,
                logging_steps=50,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                dataloader_pin_memory=False,
                seed=config.seed,
            ),
            train_dataset=LabelDataset(words[held_out:], tags[held_out:]),
            eval_dataset=LabelDataset(words[:held_out], tags[:held_out]),
            compute_metrics=token_scores,
            preprocess_logits_for_metrics=keep_best_tag,
        )
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    main()
