"""Sort tenants' letters to a housing office by what they ask for: a small BERT, trained with the Trainer."""

import random
import tempfile
from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)

TOPICS = {
    "repair": "leak boiler damp window broken ceiling tap lift mould socket",
    "rent": "arrears payment increase deposit invoice instalment late bank receipt fee",
    "neighbour": "noise party barking stairs parking smoke quarrel rubbish music dispute",
    "notice": "moving keys termination month inventory handover lease successor date signed",
}
FILLER = "the we since flat please you our and in was has again to office week told yesterday with still hope".split()
SPECIAL = ["[PAD]", "[CLS]", "[SEP]"]


@dataclass
class ModelArguments:
    hidden_size: int = field(default=128)
    layers: int = field(default=3)
    heads: int = field(default=8)
    attention: str = field(default="sdpa", metadata={"help": "implementation of the attention"})


@dataclass
class DataArguments:
    letters: int = field(default=640)
    longest: int = field(default=256)
    shortest: int = field(default=160)
    batch_size: int = field(default=8)


def build_vocabulary():
    words = sorted({word for text in TOPICS.values() for word in text.split()} | set(FILLER))
    return {word: number for number, word in enumerate(SPECIAL + words)}


class Letters(Dataset):
    """Letters of filler words with a few words of their topic, as token ids."""

    def __init__(self, count, vocabulary, shortest, longest, seed):
        rng = random.Random(seed)
        self.letters = []
        for _ in range(count):
            label = rng.randrange(len(TOPICS))
            own = list(TOPICS.values())[label].split()
            length = rng.randint(shortest, longest) - 2
            words = [rng.choice(own) if rng.random() < 0.08 else rng.choice(FILLER) for _ in range(length)]
            ids = [vocabulary[word] for word in ["[CLS]", *words, "[SEP]"]]
            self.letters.append({"input_ids": torch.tensor(ids), "label": label})

    def __len__(self):
        return len(self.letters)

    def __getitem__(self, index):
        return self.letters[index]


class PadLetters:
    def __init__(self, padding):
        self.padding = padding

    def __call__(self, letters):
        ids = torch.nn.utils.rnn.pad_sequence(
            [letter["input_ids"] for letter in letters], batch_first=True, padding_value=self.padding
        )
        labels = torch.tensor([letter["label"] for letter in letters])
        return {"input_ids": ids, "attention_mask": (ids != self.padding).long(), "labels": labels}


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(axis=-1) == prediction.label_ids).mean())}


def build_model(arguments, vocabulary, longest):
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=arguments.hidden_size,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.heads,
        intermediate_size=2 * arguments.hidden_size,
        max_position_embeddings=longest,
        attention_probs_dropout_prob=0.0,
        num_labels=len(TOPICS),
        pad_token_id=vocabulary["[PAD]"],
    )
    return AutoModelForSequenceClassification.from_config(config, attn_implementation=arguments.attention)


def main():
    model_arguments, data = HfArgumentParser((ModelArguments, DataArguments)).parse_args_into_dataclasses()
    set_seed(8)
    vocabulary = build_vocabulary()
    train = Letters(data.letters, vocabulary, data.shortest, data.longest, seed=8)
    test = Letters(64, vocabulary, data.shortest, data.longest, seed=9)
    model = build_model(model_arguments, vocabulary, data.longest)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=data.batch_size,
            per_device_eval_batch_size=32,
            learning_rate=5e-4,
            optim="adamw_torch_fused",
            logging_steps=20,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=8,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=train,
            eval_dataset=test,
            data_collator=PadLetters(vocabulary["[PAD]"]),
            compute_metrics=accuracy,
        )
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    main()
