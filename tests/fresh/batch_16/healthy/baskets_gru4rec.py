"""Next items of shopping sessions with a GRU; the other sessions of a batch serve as negatives."""

import torch
from torch import nn
from torch.nn import functional as F

ITEMS, LENGTH = 3000, 20


def sessions(count, seed):
    """Each session wanders through a neighbourhood of items."""
    g = torch.Generator().manual_seed(seed)
    start = torch.randint(0, ITEMS, (count, 1), generator=g)
    steps = torch.randint(1, 6, (count, LENGTH), generator=g)
    return (start + steps.cumsum(1)) % ITEMS


class GRU4Rec(nn.Module):
    def __init__(self, dim=80):
        super().__init__()
        self.items = nn.Embedding(ITEMS, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.drop = nn.Dropout(0.1)
        nn.init.normal_(self.items.weight, std=0.1)

    def forward(self, session):
        states, _ = self.gru(self.drop(self.items(session)))
        return states


def in_batch_loss(states, vectors, items, own):
    """All go by position, then session. Equal items elsewhere in the batch are no negatives."""
    scores = states @ vectors.transpose(1, 2)
    same = items[:, :, None] == items[:, None]
    same.diagonal(dim1=1, dim2=2).fill_(False)
    scores = scores.masked_fill(same, -1e9)
    return F.cross_entropy(scores.flatten(0, 1), own)


def main():
    torch.manual_seed(0)
    train, valid = sessions(9600, 0), sessions(400, 1)
    model, batch = GRU4Rec(), 128
    own = torch.arange(batch).repeat(LENGTH - 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    for epoch in range(2):
        model.train()
        total = torch.zeros(())
        order = torch.randperm(len(train)).view(-1, batch)
        for index in order:
            session = train[index]
            states = model(session[:, :-1]).transpose(0, 1)
            items = session[:, 1:].t()
            loss = in_batch_loss(states, model.items(items), items, own)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        model.eval()
        with torch.inference_mode():
            scores = model(valid[:, :-1])[:, -1] @ model.items.weight.t()
            hit = (scores.topk(20).indices == valid[:, -1:]).any(1).float().mean().item()
        print(f"epoch {epoch}: loss {total.item() / len(order):.4f} hit@20 {hit:.3f}")


if __name__ == "__main__":
    main()
