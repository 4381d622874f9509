"""Train a small Llama on packed blocks; accuracy is reduced to tokens before it is gathered."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

BLOCK = 128
VOCAB = 1200


class Blocks(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        idioms = torch.randint(0, VOCAB, (60, 8), generator=torch.Generator().manual_seed(1))
        picked = torch.randint(0, 60, (count, BLOCK // 8), generator=generator)
        self.ids = idioms[picked].flatten(1)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def best_token(logits, labels):
    return logits.argmax(-1)


def next_token_accuracy(prediction):
    guesses, labels = prediction.predictions[:, :-1], prediction.label_ids[:, 1:]
    return {"accuracy": float((guesses == labels).mean())}


def main():
    set_seed(4)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=BLOCK,
        tie_word_embeddings=True,
        use_cache=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            max_steps=160,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=8,
            learning_rate=1e-3,
            warmup_steps=20,
            logging_steps=40,
            eval_strategy="steps",
            eval_steps=80,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=LlamaForCausalLM(config),
            args=args,
            train_dataset=Blocks(1280, seed=2),
            eval_dataset=Blocks(32, seed=3),
            compute_metrics=next_token_accuracy,
            preprocess_logits_for_metrics=best_token,
        )
        trainer.train()


if __name__ == "__main__":
    main()
