"""Train a small vision transformer on drawings of leaves."""

import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

SPECIES = 12
SIZE = 48


class LeafDataset(Dataset):
    """Each species has its own number of lobes; position and colour vary."""

    def __init__(self, size, seed, train):
        rng = np.random.default_rng(seed)
        self.train = train
        self.labels = rng.integers(0, SPECIES, size)
        rows, columns = np.mgrid[0:SIZE, 0:SIZE] / SIZE - 0.5
        angle, radius = np.arctan2(rows, columns), np.hypot(rows, columns)
        lobes = self.labels[:, None, None] + 2
        outline = 0.3 + 0.08 * np.sin(lobes * angle[None] + rng.uniform(0, 6, (size, 1, 1)))
        leaf = (radius[None] < outline).astype(np.float32)
        colour = rng.uniform(0.3, 1, (size, 3, 1, 1)).astype(np.float32)
        self.images = torch.from_numpy(leaf[:, None] * colour)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if self.train and torch.rand(()) < 0.5:
            image = image.flip(-1)
        return {"pixel_values": image, "labels": int(self.labels[index])}


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    set_seed(11)
    config = ViTConfig(
        image_size=SIZE,
        patch_size=6,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=384,
        num_labels=SPECIES,
    )
    model = ViTForImageClassification(config)
    with tempfile.TemporaryDirectory() as output_dir:
        args = TrainingArguments(
            output_dir=output_dir,
            per_device_train_batch_size=24,
            per_device_eval_batch_size=48,
            num_train_epochs=2,
            learning_rate=5e-4,
            weight_decay=0.05,
            gradient_checkpointing=True,
            logging_steps=25,
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=LeafDataset(1800, seed=1, train=True),
            eval_dataset=LeafDataset(192, seed=2, train=False),
            compute_metrics=accuracy,
        )
        trainer.train()


if __name__ == "__main__":
    main()
