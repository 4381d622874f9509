"""Sorts letters about the harvest by concern, with the Trainer of Transformers and a small RoBERTa."""

import random
import tempfile
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import Dataset
from transformers import (
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

CONCERNS = {
    "weather": "rain hail drought frost storm flood heat wind".split(),
    "labour": "reapers wages hands strike hours lodging foreman crew".split(),
    "machines": "thresher belt boiler blade axle engine spare smith".split(),
    "prices": "market buyer bushel debt bank tithe scale contract".split(),
    "pests": "mice beetle rust mould crows weevil smut locust".split(),
}
COMMON = (
    "we have the field and barn by now as before while nobody in our valley knows whether it will be enough for "
    "this year i write to you again about what happened after sunday when they came from mill with carts".split()
)


@dataclass
class Settings:
    letters: int = 2400
    held_out: int = 200
    vocabulary: int = 400
    max_length: int = 256
    hidden_size: int = 96
    layers: int = 3
    batch_size: int = 16
    learning_rate: float = 1e-3
    epochs: float = 1.0
    sampling: str = "group_by_length"
    seed: int = 1846


def write_letter(rng: random.Random) -> tuple[str, int]:
    """Most letters are a note of a line or two; some people write for pages."""
    label = rng.randrange(len(CONCERNS))
    concern = list(CONCERNS.values())[label]
    length = min(220, int(rng.lognormvariate(3.2, 0.9)) + 6)
    words = [rng.choice(concern) if rng.random() < 0.15 else rng.choice(COMMON) for _ in range(length)]
    words[rng.randrange(length)] = rng.choice(concern)
    return " ".join(words), label


def learn_tokenizer(texts: list[str], vocabulary: int) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=special))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


class Letters(Dataset):
    def __init__(self, letters: list[tuple[str, int]], tokenizer: PreTrainedTokenizerFast, max_length: int):
        texts = [text for text, _ in letters]
        self.ids = tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]
        self.labels = [label for _, label in letters]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict:
        ids = self.ids[index]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": self.labels[index]}


def score(prediction) -> dict[str, float]:
    predicted = prediction.predictions.argmax(-1)
    right = predicted == prediction.label_ids
    recalls = [right[prediction.label_ids == label].mean() for label in np.unique(prediction.label_ids)]
    return {"accuracy": float(right.mean()), "macro_recall": float(np.mean(recalls))}


def build_model(settings: Settings, tokenizer: PreTrainedTokenizerFast) -> RobertaForSequenceClassification:
    names = dict(enumerate(CONCERNS))
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=4,
        intermediate_size=4 * settings.hidden_size,
        max_position_embeddings=settings.max_length + 2,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        id2label=names,
        label2id={name: number for number, name in names.items()},
    )
    return RobertaForSequenceClassification(config)


def main() -> None:
    settings = Settings()
    set_seed(settings.seed)
    rng = random.Random(settings.seed)
    letters = [write_letter(rng) for _ in range(settings.letters + settings.held_out)]
    tokenizer = learn_tokenizer([text for text, _ in letters], settings.vocabulary)
    train_set = Letters(letters[: settings.letters], tokenizer, settings.max_length)
    test_set = Letters(letters[settings.letters :], tokenizer, settings.max_length)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=settings.batch_size,
            per_device_eval_batch_size=50,
            num_train_epochs=settings.epochs,
            learning_rate=settings.learning_rate,
            warmup_steps=15,
            lr_scheduler_type="cosine",
            train_sampling_strategy=settings.sampling,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=settings.seed,
        )
        trainer = Trainer(
            model=build_model(settings, tokenizer),
            args=arguments,
            data_collator=DataCollatorWithPadding(tokenizer),
            train_dataset=train_set,
            eval_dataset=test_set,
            compute_metrics=score,
        )
        trainer.train()
        scores = trainer.evaluate()
        trainer.save_model(folder)
    print({name: round(value, 3) for name, value in scores.items() if name in ("eval_accuracy", "eval_macro_recall")})


if __name__ == "__main__":
    main()
