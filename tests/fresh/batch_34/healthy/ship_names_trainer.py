"""Where ships and ports are named in harbour reports: BERT for tokens under the Trainer of Transformers."""

import random
import tempfile
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments, set_seed

TAGS = ("other", "ship", "port", "cargo")
SHIPS = "aurora meridian petrel halcyon corsair endeavour albatross fortuna calypso".split()
PORTS = "bergen antwerp lisbon trieste gdansk marseille cork malmo split".split()
CARGO = "timber wool coal salt barley copper sugar oranges".split()
FRAMES = (
    "the ship left port with a load of cargo",
    "off port the captain of the ship reported heavy swell and lost cargo",
    "cargo for port was taken aboard ship at dawn",
    "pilots brought the damaged ship into port",
    "the agent at port asks for the papers of the ship and its cargo",
)
LISTS = {"ship": SHIPS, "port": PORTS, "cargo": CARGO}


@dataclass
class Settings:
    reports: int = 1500
    window: int = 64
    hidden_size: int = 128
    layers: int = 3
    heads: int = 4
    batch_size: int = 16
    steps: int = 130
    learning_rate: float = 8e-4
    seed: int = 52


def write_report(rng: random.Random, sentences: int) -> list[tuple[str, int]]:
    words = []
    for frame in rng.choices(FRAMES, k=sentences):
        for word in frame.split():
            if word in LISTS and rng.random() < 0.8:
                words.append((rng.choice(LISTS[word]), TAGS.index(word)))
            else:
                words.append((word, 0))
    return words


class ReportWindows(Dataset):
    """The words of all reports in a row, in windows of equal length, so that nothing is padded."""

    def __init__(self, reports: list[list[tuple[str, int]]], ids: dict[str, int], window: int):
        words = [pair for report in reports for pair in report]
        count = len(words) // window * window
        self.inputs = torch.tensor([ids[word] for word, _ in words[:count]]).view(-1, window)
        self.labels = torch.tensor([tag for _, tag in words[:count]]).view(-1, window)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.inputs[index], "labels": self.labels[index]}


def tag_scores(prediction) -> dict[str, float]:
    guesses, labels = prediction
    named = labels > 0
    return {"accuracy": float((guesses == labels).mean()), "recall": float((guesses == labels)[named].mean())}


def main() -> None:
    settings = Settings()
    set_seed(settings.seed)
    rng = random.Random(settings.seed)
    reports = [write_report(rng, rng.randint(3, 9)) for _ in range(settings.reports)]
    words = sorted({word for report in reports for word, _ in report})
    ids = {word: number for number, word in enumerate(words)}
    border = int(0.9 * len(reports))
    train_set = ReportWindows(reports[:border], ids, settings.window)
    test_set = ReportWindows(reports[border:], ids, settings.window)
    config = BertConfig(
        vocab_size=len(ids),
        hidden_size=settings.hidden_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=4 * settings.hidden_size,
        max_position_embeddings=settings.window,
        attention_probs_dropout_prob=0.0,
        num_labels=len(TAGS),
        attn_implementation="sdpa",
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=settings.batch_size,
            per_device_eval_batch_size=64,
            max_steps=settings.steps,
            learning_rate=settings.learning_rate,
            warmup_steps=13,
            lr_scheduler_type="cosine",
            optim="adamw_torch_fused",
            logging_steps=40,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=settings.seed,
        )
        trainer = Trainer(
            model=BertForTokenClassification(config),
            args=arguments,
            train_dataset=train_set,
            eval_dataset=test_set,
            compute_metrics=tag_scores,
            preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
        )
        trainer.train()
        scores = trainer.evaluate()
    print(f"accuracy {scores['eval_accuracy']:.3f}, recall of names {scores['eval_recall']:.3f}")


if __name__ == "__main__":
    main()
