"""A tiny Llama learns by policy gradients to answer riddles of numbers, with advantages within groups of answers."""

import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

PAD, BOS, EOS, FIRST = 0, 1, 2, 3


class Riddles(Dataset):
    """Sequences of symbols whose wanted answer goes on with the same step."""

    def __init__(self, count, length, symbols, seed):
        generator = torch.Generator().manual_seed(seed)
        start = torch.randint(0, symbols, (count, 1), generator=generator)
        stride = torch.randint(1, 5, (count, 1), generator=generator)
        sequence = FIRST + (start + stride * torch.arange(2 * length)) % symbols
        self.prompts = torch.cat([torch.full((count, 1), BOS), sequence[:, :length]], dim=1)
        self.answers = sequence[:, length:]

    def __len__(self):
        return len(self.prompts)

    def __getitem__(self, index):
        return self.prompts[index], self.answers[index]


def build_policy(args):
    config = LlamaConfig(
        vocab_size=FIRST + args.symbols,
        hidden_size=args.hidden,
        intermediate_size=3 * args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


class GroupReinforce:
    def __init__(self, policy, args):
        self.policy, self.args = policy, args
        self.optimizer = torch.optim.AdamW(policy.parameters(), lr=args.lr, fused=True)
        self.generation = GenerationConfig(
            do_sample=True,
            top_k=0,
            max_new_tokens=args.answer,
            min_new_tokens=args.answer,
            num_return_sequences=args.group,
            use_cache=True,
            pad_token_id=PAD,
            eos_token_id=EOS,
        )

    @torch.no_grad()
    def rollout(self, prompts):
        self.policy.eval()
        sequences = self.policy.generate(
            input_ids=prompts, attention_mask=torch.ones_like(prompts), generation_config=self.generation
        )
        self.policy.train()
        return sequences

    def reward(self, sequences, answers):
        wanted = answers[:, : self.args.answer].repeat_interleave(self.args.group, dim=0)
        return (sequences[:, -self.args.answer :] == wanted).float().mean(1)

    def advantages(self, rewards):
        groups = rewards.view(-1, self.args.group)
        return ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten()

    def update(self, sequences, advantages):
        logits = self.policy(input_ids=sequences, use_cache=False).logits[:, -self.args.answer - 1 : -1]
        chosen = sequences[:, -self.args.answer :]
        log_probs = -F.cross_entropy(logits.transpose(1, 2), chosen, reduction="none")
        loss = -(advantages[:, None] * log_probs).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    def train(self, loader):
        for step, (prompts, answers) in enumerate(loader):
            sequences = self.rollout(prompts)
            rewards = self.reward(sequences, answers)
            loss = self.update(sequences, self.advantages(rewards))
            if step % 20 == 0:
                print(f"step {step:3d}  reward {rewards.mean().item():.3f}  loss {loss:+.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--riddles", type=int, default=248)
    parser.add_argument("--prompt", type=int, default=48)
    parser.add_argument("--answer", type=int, default=10)
    parser.add_argument("--symbols", type=int, default=40)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=13)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    data = Riddles(args.riddles, args.prompt, args.symbols, args.seed)
    loader = DataLoader(data, args.batch_size, shuffle=True, drop_last=True)
    GroupReinforce(build_policy(args), args).train(loader)


if __name__ == "__main__":
    main()
