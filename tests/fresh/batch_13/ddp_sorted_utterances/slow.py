"""Recognise digits in utterances of many lengths, two ranks: torchrun --nproc-per-node=2 slow.py"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler

CLASSES = 11


class Utterances(Dataset):
    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.lengths = torch.randint(20, 240, (size,), generator=generator).tolist()
        self.labels = torch.randint(1, CLASSES, (size, 3), generator=generator)
        self.voices = torch.randn(CLASSES, 40, generator=generator)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        spoken = self.labels[index].repeat_interleave(self.lengths[index] // 3 + 1)[: self.lengths[index]]
        return self.voices[spoken] + 0.5 * torch.randn(len(spoken), 40), self.labels[index]


class LengthSampler(Sampler):
    """Batches of utterances of similar length, in a random order."""

    def __init__(self, lengths, batch_size, rank, ranks, seed=0):
        ordered = sorted(range(len(lengths)), key=lengths.__getitem__)
        share = len(ordered) // ranks
        self.indices = ordered[rank * share : (rank + 1) * share]
        self.batch_size, self.seed, self.epoch = batch_size, seed, 0

    def __len__(self):
        return len(self.indices) // self.batch_size

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        self.epoch += 1
        for batch in torch.randperm(len(self), generator=generator).tolist():
            yield self.indices[batch * self.batch_size : (batch + 1) * self.batch_size]


class Recogniser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.subsample = nn.Conv1d(40, width, 3, stride=2, padding=1)
        self.encoder = nn.GRU(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, CLASSES)

    def forward(self, features):
        h = torch.relu(self.subsample(features.transpose(1, 2))).transpose(1, 2)
        return self.out(self.encoder(h)[0]).log_softmax(-1)


def collate(batch):
    features = nn.utils.rnn.pad_sequence([x for x, _ in batch], batch_first=True)
    lengths = torch.tensor([(len(x) + 1) // 2 for x, _ in batch])
    return features, lengths, torch.stack([y for _, y in batch])


def main():
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    dataset = Utterances(1280, seed=0)
    sampler = LengthSampler(dataset.lengths, 8, rank, ranks)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)
    model = DistributedDataParallel(Recogniser())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CTCLoss(zero_infinity=True)
    for epoch in range(2):
        for features, lengths, labels in loader:
            log_probs = model(features)
            loss = criterion(log_probs.transpose(0, 1), labels, lengths, torch.full((len(labels),), 3))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
