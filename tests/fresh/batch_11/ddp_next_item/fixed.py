"""The next item of a session, by a recurrent recommender on two processes."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from logs import Averages
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Recommender(nn.Module):
    def __init__(self, items, width=32):
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, sessions):
        state, _ = self.gru(self.items(sessions))
        return state[:, -1] @ self.items.weight.t()


class Module:
    """A model with its training step."""

    def __init__(self, items):
        self.model = DistributedDataParallel(Recommender(items))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.averages = Averages()

    def training_step(self, sessions, target):
        logits = self.model(sessions)
        loss = F.cross_entropy(logits, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        best = logits.detach().topk(20, dim=1).indices == target[:, None]
        metrics = {"loss": loss}
        for k in (1, 5, 10, 20):
            metrics[f"hitrate@{k}"] = best[:, :k].any(dim=1).float().mean()
        metrics["mrr@20"] = (best / torch.arange(1, 21)).sum(dim=1).mean()
        return metrics

    def log(self, metrics, rows):
        self.averages.update(metrics, rows)

    def end_of_epoch(self):
        means = self.averages.reduce()
        self.averages = Averages()
        return means


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    items = 400
    sessions = torch.randint(items, (6400, 8))
    data = TensorDataset(sessions, (sessions[:, -1] + 1) % items)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, drop_last=True)
    module = Module(items)
    for epoch in range(7):
        sampler.set_epoch(epoch)
        for batch in loader:
            module.log(module.training_step(*batch), rows=len(batch[0]))
        means = module.end_of_epoch()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}", {name: round(value, 4) for name, value in means.items()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
