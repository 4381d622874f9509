"""Topics of petitions to a parliament: a small BERT, trained from scratch by the Trainer of transformers."""

import argparse
import random
import tempfile

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

TOPICS = ["transport", "health", "schools", "housing", "animals", "energy"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--petitions", type=int, default=1500)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=8)
    return parser.parse_args()


def write_petitions(count: int, seed: int) -> tuple[list[str], list[int]]:
    """Most petitions are a sentence or two; each topic has words of its own among the common ones."""
    rng = random.Random(seed)
    common = [f"word{i}" for i in range(600)]
    own = [[f"{topic}{i}" for i in range(60)] for topic in TOPICS]
    texts, labels = [], []
    for _ in range(count):
        label = rng.randrange(len(TOPICS))
        length = min(int(rng.lognormvariate(3.1, 0.45)) + 4, 110)
        words = [rng.choice(own[label]) if rng.random() < 0.4 else rng.choice(common) for _ in range(length)]
        texts.append(" ".join(words))
        labels.append(label)
    return texts, labels


def build_tokenizer(texts: list[str], max_length: int) -> PreTrainedTokenizerFast:
    words = sorted({word for text in texts for word in text.split()})
    vocabulary = {word: i for i, word in enumerate(SPECIAL + words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


class PetitionDataset(Dataset):
    def __init__(self, texts: list[str], labels: list[int], tokenizer: PreTrainedTokenizerFast, max_length: int):
        self.encodings = tokenizer(
            texts,
            truncation=True,
            max_length=max_length,
            return_token_type_ids=False,
        )
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict:
        item = {key: values[index] for key, values in self.encodings.items()}
        item["labels"] = self.labels[index]
        return item


def compute_metrics(prediction) -> dict[str, float]:
    guessed = prediction.predictions.argmax(axis=-1)
    return {"accuracy": float(np.mean(guessed == prediction.label_ids))}


def main() -> None:
    args = parse_args()
    set_seed(args.seed)
    texts, labels = write_petitions(args.petitions, args.seed)
    tokenizer = build_tokenizer(texts, args.max_length)
    cut = args.petitions - 200
    train_set = PetitionDataset(texts[:cut], labels[:cut], tokenizer, args.max_length)
    valid_set = PetitionDataset(texts[cut:], labels[cut:], tokenizer, args.max_length)

    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=384,
        max_position_embeddings=args.max_length,
        num_labels=len(TOPICS),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        training = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=args.batch_size,
            per_device_eval_batch_size=50,
            num_train_epochs=args.epochs,
            learning_rate=args.lr,
            warmup_steps=20,
            logging_steps=25,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=args.seed,
        )
        trainer = Trainer(
            model=model,
            args=training,
            train_dataset=train_set,
            eval_dataset=valid_set,
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=compute_metrics,
        )
        trainer.train()
        print(f"accuracy {trainer.evaluate()['eval_accuracy']:.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
