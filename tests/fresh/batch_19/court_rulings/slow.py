"""Which paragraph of the law a ruling rests on: a small BERT on long generated rulings, trained by the Trainer."""

import logging
import sys
import tempfile
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

logger = logging.getLogger("rulings")


@dataclass
class ModelArguments:
    hidden_size: int = field(default=96, metadata={"help": "Width of the encoder."})
    num_layers: int = field(default=2, metadata={"help": "Layers of the encoder."})
    num_heads: int = field(default=6, metadata={"help": "Heads of each layer."})
    attn_implementation: str = field(default="eager", metadata={"help": "Which attention the layers use."})


@dataclass
class DataArguments:
    rulings: int = field(default=560, metadata={"help": "Rulings to train on."})
    held_out: int = field(default=64, metadata={"help": "Rulings to evaluate on."})
    length: int = field(default=320, metadata={"help": "Tokens of a ruling."})
    paragraphs: int = field(default=10, metadata={"help": "Classes."})


class Rulings(Dataset):
    """Token ids with some phrases that belong to the class."""

    def __init__(self, count, args, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, args.paragraphs, count)
        self.ids = rng.integers(200, 2000, (count, args.length))
        for row, label in zip(self.ids, self.labels):
            places = rng.integers(1, args.length - 4, 12)
            for place in places:
                row[place : place + 3] = 20 + 3 * label + np.arange(3)
        self.ids[:, 0] = 2

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


def collate(features):
    ids = torch.from_numpy(np.stack([f["input_ids"] for f in features]))
    labels = torch.tensor([f["labels"] for f in features])
    return {"input_ids": ids, "labels": labels}


def build_model(model_args, data_args):
    config = BertConfig(
        vocab_size=2000,
        hidden_size=model_args.hidden_size,
        num_hidden_layers=model_args.num_layers,
        num_attention_heads=model_args.num_heads,
        intermediate_size=4 * model_args.hidden_size,
        max_position_embeddings=data_args.length,
        num_labels=data_args.paragraphs,
        attention_probs_dropout_prob=0.0,
        attn_implementation=model_args.attn_implementation,
    )
    return BertForSequenceClassification(config)


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        parts = [f"{key} {value:.4g}" for key, value in (logs or {}).items() if key in ("loss", "eval_accuracy")]
        if parts:
            logger.info("step %d: %s", state.global_step, ", ".join(parts))


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments))
    model_args, data_args = parser.parse_args_into_dataclasses(sys.argv[1:])
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logger.setLevel(logging.INFO)
    set_seed(5)
    with tempfile.TemporaryDirectory() as folder:
        training = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=16,
            num_train_epochs=1,
            learning_rate=5e-4,
            warmup_steps=10,
            lr_scheduler_type="cosine",
            logging_steps=20,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=build_model(model_args, data_args),
            args=training,
            train_dataset=Rulings(data_args.rulings, data_args, seed=1),
            eval_dataset=Rulings(data_args.held_out, data_args, seed=2),
            data_collator=collate,
            compute_metrics=accuracy,
            callbacks=[Report()],
        )
        trainer.train()
        trainer.save_model(folder)


if __name__ == "__main__":
    main()
