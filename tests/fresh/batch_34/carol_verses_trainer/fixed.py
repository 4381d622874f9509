"""A small Llama that continues carols, trained from scratch with the Trainer of Transformers."""

import random
import tempfile
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

WORDS = {
    "adjective": "silent holy merry bright frosty gentle humble joyful".split(),
    "noun": "night star shepherd snow manger candle bell angel winter child".split(),
    "verb": "rings sings shines sleeps wanders glows wakes kneels".split(),
    "place": "hill valley stable village meadow steeple harbour".split(),
}
PATTERNS = (
    "the {adjective} {noun} {verb} above the {place}",
    "o {adjective} {noun} how softly it {verb}",
    "come to the {place} where the {noun} {verb}",
    "and every {noun} of the {place} {verb} again",
)
REFRAIN = "sing noel sing noel"


@dataclass
class Settings:
    carols: int = 420
    verses: int = 9
    context: int = 256
    hidden_size: int = 128
    layers: int = 3
    heads: int = 8
    attention: str = "sdpa"
    batch_size: int = 4
    steps: int = 75
    learning_rate: float = 1e-3
    warmup_steps: int = 8
    seed: int = 24


def write_carol(rng: random.Random, verses: int) -> list[str]:
    lines = []
    for _ in range(verses):
        for pattern in rng.sample(PATTERNS, 4):
            lines.append(pattern.format(**{kind: rng.choice(words) for kind, words in WORDS.items()}))
        lines.append(REFRAIN)
    return lines


class Vocabulary:
    def __init__(self, carols: list[list[str]]):
        words = sorted({word for carol in carols for line in carol for word in line.split()})
        self.begin, self.line_end = 0, 1
        self.ids = {word: number for number, word in enumerate(words, start=2)}

    def __len__(self) -> int:
        return len(self.ids) + 2

    def encode(self, carol: list[str]) -> list[int]:
        ids = [self.begin]
        for line in carol:
            ids += [self.ids[word] for word in line.split()]
            ids.append(self.line_end)
        return ids


class Blocks(Dataset):
    """All carols one after the other, cut into blocks of the length of the context."""

    def __init__(self, carols: list[list[str]], vocabulary: Vocabulary, context: int):
        stream = torch.tensor([number for carol in carols for number in vocabulary.encode(carol)])
        count = len(stream) // context
        self.blocks = stream[: count * context].view(count, context)

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.blocks[index], "labels": self.blocks[index]}


def build_model(settings: Settings, vocabulary: Vocabulary) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=settings.hidden_size,
        intermediate_size=3 * settings.hidden_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        max_position_embeddings=settings.context,
        use_cache=False,
        bos_token_id=vocabulary.begin,
        eos_token_id=None,
        attn_implementation=settings.attention,
    )
    return LlamaForCausalLM(config)


def main() -> None:
    settings = Settings()
    set_seed(settings.seed)
    rng = random.Random(settings.seed)
    carols = [write_carol(rng, settings.verses) for _ in range(settings.carols)]
    vocabulary = Vocabulary(carols)
    border = int(0.95 * len(carols))
    train_set = Blocks(carols[:border], vocabulary, settings.context)
    test_set = Blocks(carols[border:], vocabulary, settings.context)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=settings.batch_size,
            per_device_eval_batch_size=8,
            max_steps=settings.steps,
            learning_rate=settings.learning_rate,
            warmup_steps=settings.warmup_steps,
            lr_scheduler_type="cosine",
            logging_steps=20,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=settings.seed,
        )
        model = build_model(settings, vocabulary)
        trainer = Trainer(model=model, args=arguments, train_dataset=train_set, eval_dataset=test_set)
        trainer.train()
        scores = trainer.evaluate()
    print(f"held-out loss {scores['eval_loss']:.3f}")


if __name__ == "__main__":
    main()
