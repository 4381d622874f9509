"""Train a small Llama on packed query logs."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, default_data_collator, set_seed

BLOCK = 512
VOCAB = 800


def write_log(tokens, seed):
    """A stream of templates that are filled with table and column names."""
    generator = torch.Generator().manual_seed(seed)
    templates = torch.randint(0, 100, (30, 12), generator=generator)
    chosen = templates[torch.randint(0, 30, (tokens // 12,), generator=generator)]
    names = torch.randint(100, VOCAB, chosen.shape, generator=generator)
    slots = torch.tensor([0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 0], dtype=torch.bool)
    return torch.where(slots, names, chosen).flatten()


class PackedDataset(Dataset):
    def __init__(self, stream):
        self.blocks = stream[: len(stream) // BLOCK * BLOCK].view(-1, BLOCK)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        return {"input_ids": self.blocks[index], "labels": self.blocks[index]}


def main():
    set_seed(1)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=BLOCK,
        attn_implementation="eager",
    )
    model = LlamaForCausalLM(config)
    with tempfile.TemporaryDirectory() as output_dir:
        args = TrainingArguments(
            output_dir=output_dir,
            max_steps=110,
            per_device_train_batch_size=2,
            learning_rate=1e-3,
            warmup_steps=10,
            max_grad_norm=1.0,
            logging_steps=20,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=PackedDataset(write_log(250_000, seed=5)),
            data_collator=default_data_collator,
        )
        trainer.train()


if __name__ == "__main__":
    main()
