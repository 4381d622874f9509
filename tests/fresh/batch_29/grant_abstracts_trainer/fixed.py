"""Panels for abstracts of grant proposals: a small BERT, trained by Transformers' Trainer."""

import tempfile
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()


@dataclass
class ModelOptions:
    vocabulary: int = 3000
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    panels: int = 12


@dataclass
class RunOptions:
    abstracts: int = 880
    length: int = 96
    batch: int = 8
    epochs: float = 1.0
    learning_rate: float = 4e-4
    gradient_checkpointing: bool = field(default=False, metadata={"help": "recompute activations of the layers"})
    seed: int = 21


class Abstracts(Dataset):
    """Abstracts whose words are drawn from a mixture of the panel's and everybody's."""

    def __init__(self, run: RunOptions, model: ModelOptions):
        rng = np.random.default_rng(run.seed)
        topic = rng.integers(10, model.vocabulary, size=(model.panels, 60))
        panels = rng.integers(model.panels, size=run.abstracts)
        common = rng.integers(10, model.vocabulary, size=(run.abstracts, run.length))
        own = np.take_along_axis(topic[panels], rng.integers(60, size=(run.abstracts, run.length)), axis=1)
        words = np.where(rng.random((run.abstracts, run.length)) < 0.3, own, common)
        words[:, 0] = 1
        self.words = torch.from_numpy(words)
        self.panels = torch.from_numpy(panels)

    def __len__(self):
        return len(self.panels)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.panels[index]}


def collate(rows):
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


def build(options: ModelOptions, length: int) -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        intermediate_size=4 * options.hidden,
        max_position_embeddings=length,
        num_labels=options.panels,
    )
    return BertForSequenceClassification(config)


def arguments(run: RunOptions, folder: str) -> TrainingArguments:
    return TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=run.batch,
        num_train_epochs=run.epochs,
        learning_rate=run.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=10,
        gradient_checkpointing=run.gradient_checkpointing,
        logging_steps=25,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        seed=run.seed,
        disable_tqdm=True,
    )


def main():
    model_options, run = ModelOptions(), RunOptions()
    torch.manual_seed(run.seed)
    model = build(model_options, run.length)
    dataset = Abstracts(run, model_options)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(model=model, args=arguments(run, folder), train_dataset=dataset, data_collator=collate)
        result = trainer.train()
    print(f"{result.global_step} steps, loss {result.training_loss:.4f}")


if __name__ == "__main__":
    main()
