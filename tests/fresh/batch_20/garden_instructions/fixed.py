"""Fine-tunes a small Llama on instructions about gardening with the trainer of transformers."""

import random
import tempfile
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

CUTOFF_LEN = 128
TEMPLATE = "### Instruction: {instruction} ### Response: {output}"
PLANTS = ["tomato", "basil", "lavender", "bean", "carrot", "rose", "leek", "kale", "dahlia", "fern", "thyme", "quince"]
DEEDS = ["water", "prune", "sow", "repot", "feed", "harvest", "mulch", "stake", "thin", "graft"]
ADVICE = "early in the morning when soil is dry but not later than noon since sun burns wet leaves of any young plant"


class WordTokenizer:
    """Whole words, as a stand-in for a trained vocabulary."""

    pad_token_id, eos_token_id = 0, 1

    def __init__(self, texts):
        words = sorted({word for text in texts for word in text.split()})
        self.ids = {word: i + 2 for i, word in enumerate(words)}

    def __len__(self):
        return len(self.ids) + 2

    def __call__(self, text, max_length, padding):
        words = text.split()[: max_length - 1]
        ids = [*(self.ids[word] for word in words), self.eos_token_id]
        mask = [1] * len(ids)
        if padding == "max_length":
            mask += [0] * (max_length - len(ids))
            ids += [self.pad_token_id] * (max_length - len(ids))
        return {"input_ids": ids, "attention_mask": mask}


def write_records(n, seed=0):
    rng = random.Random(seed)
    advice = ADVICE.split()
    for _ in range(n):
        deed, plant = rng.choice(DEEDS), rng.choice(PLANTS)
        told = " ".join(rng.choices(advice, k=int(rng.lognormvariate(3.2, 0.6)) + 4))
        yield {"instruction": f"how do i {deed} my {plant}", "output": f"{deed} the {plant} {told}"}


class Instructions(Dataset):
    def __init__(self, texts, tokenizer):
        self.encoded = [tokenize(text, tokenizer) for text in texts]

    def __len__(self):
        return len(self.encoded)

    def __getitem__(self, i):
        return self.encoded[i]


def tokenize(prompt, tokenizer):
    result = tokenizer(prompt, max_length=CUTOFF_LEN, padding=False)
    labels = [i if kept else -100 for i, kept in zip(result["input_ids"], result["attention_mask"])]
    return {**result, "labels": labels}


@dataclass
class CausalCollator:
    """Pads what is shorter than the longest of the batch, on the left."""

    pad_token_id: int

    def __call__(self, features):
        longest = max(len(f["input_ids"]) for f in features)
        fill = {"input_ids": self.pad_token_id, "attention_mask": 0, "labels": -100}
        return {
            name: torch.tensor([[pad] * (longest - len(f[name])) + f[name] for f in features])
            for name, pad in fill.items()
        }


def main():
    torch.manual_seed(0)
    texts = [TEMPLATE.format(**record) for record in write_records(1200)]
    tokenizer = WordTokenizer(texts)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CUTOFF_LEN,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        use_cache=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=8,
            max_steps=150,
            learning_rate=3e-4,
            warmup_steps=20,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=LlamaForCausalLM(config),
            args=arguments,
            train_dataset=Instructions(texts, tokenizer),
            data_collator=CausalCollator(tokenizer.pad_token_id),
        )
        trainer.train()


if __name__ == "__main__":
    main()
