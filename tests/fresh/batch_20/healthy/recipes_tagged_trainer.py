"""Tags ingredients in lines of recipes with a small DistilBERT: batches padded to their longest line, HF trainer."""

import random
import tempfile

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForTokenClassification, Trainer, TrainingArguments

TAGS = ["O", "QUANTITY", "UNIT", "FOOD"]
WORDS = {
    0: [f"filler{i}" for i in range(120)],
    1: [str(i) for i in range(40)],
    2: ["g", "ml", "cup", "pinch", "tbsp", "tsp", "handful", "slice"],
    3: [f"food{i}" for i in range(300)],
}
VOCABULARY = {word: i + 1 for i, word in enumerate(word for words in WORDS.values() for word in words)}


class RecipeLines(Dataset):
    """Encoded once, kept as short tensors."""

    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.lines = []
        for _ in range(n):
            tags = []
            for _ in range(rng.randint(1, 6)):
                tags += [1, 2, 3] + [0] * rng.randint(0, 5)
            ids = [VOCABULARY[rng.choice(WORDS[tag])] for tag in tags]
            self.lines.append({"input_ids": torch.tensor(ids), "labels": torch.tensor(tags)})

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        return self.lines[i]


def collate(lines):
    ids = pad_sequence([line["input_ids"] for line in lines], batch_first=True)
    labels = pad_sequence([line["labels"] for line in lines], batch_first=True, padding_value=-100)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


def keep_classes(logits, labels):
    """The evaluation needs the class of each token, not its scores."""
    return logits.argmax(-1)


def accuracy(prediction):
    known = prediction.label_ids != -100
    return {"accuracy": float(np.mean(prediction.predictions[known] == prediction.label_ids[known]))}


def main():
    torch.manual_seed(0)
    config = DistilBertConfig(
        vocab_size=len(VOCABULARY) + 1, dim=96, hidden_dim=256, n_layers=3, n_heads=4, max_position_embeddings=64,
        num_labels=len(TAGS),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=128,
            num_train_epochs=3,
            learning_rate=1e-3,
            optim="adamw_torch_fused",
            eval_strategy="epoch",
            save_strategy="no",
            logging_steps=50,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=DistilBertForTokenClassification(config),
            args=arguments,
            train_dataset=RecipeLines(2400, 0),
            eval_dataset=RecipeLines(400, 1),
            data_collator=collate,
            compute_metrics=accuracy,
            preprocess_logits_for_metrics=keep_classes,
        )
        trainer.train()


if __name__ == "__main__":
    main()
