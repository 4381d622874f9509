"""Diagnoses on a population graph: patients are nodes, alike records weigh the edges, a GCN labels the nodes."""

import argparse
import copy
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_population(patients, features, classes, seed=0):
    """Clusters of records; sex and age are kept apart for the graph."""
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(0, classes, (patients,), generator=g)
    centre = torch.randn(classes, features, generator=g)
    records = 0.35 * centre[label] + torch.randn(patients, features, generator=g)
    age = 50 + 8 * label + 12 * torch.randn(patients, generator=g)
    sex = torch.randint(0, 2, (patients,), generator=g)
    return records, age, sex, label


def similarity_graph(records, age, sex):
    """Dense weights: alike records, near in age, of the same sex."""
    distance = torch.cdist(records, records)
    weight = torch.exp(-((distance / distance.mean()) ** 2) * 2)
    weight *= torch.exp(-(((age[:, None] - age) / 10) ** 2)) + 0.3 * (sex[:, None] == sex)
    return weight.fill_diagonal_(0)


def split(patients, seed=1):
    order = torch.randperm(patients, generator=torch.Generator().manual_seed(seed))
    masks = torch.zeros(3, patients, dtype=torch.bool)
    for mask, index in zip(masks, order.split([patients // 2, patients // 4, patients - 3 * (patients // 4)])):
        mask[index] = True
    return masks


def normalise(adjacency):
    """D^-1/2 (A + I) D^-1/2"""
    with_loops = adjacency + torch.eye(len(adjacency))
    scale = with_loops.sum(1).rsqrt()
    return scale[:, None] * with_loops * scale


class GraphConvolution(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inside, outside))
        self.bias = nn.Parameter(torch.zeros(outside))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adjacency):
        return adjacency @ (x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, features, hidden, classes, dropout):
        super().__init__()
        self.first = GraphConvolution(features, hidden)
        self.second = GraphConvolution(hidden, classes)
        self.skip = nn.Linear(features, hidden)
        self.dropout = dropout

    def forward(self, x, adjacency):
        x = F.dropout(x, self.dropout, self.training)
        x = F.relu(self.first(x, adjacency) + self.skip(x))
        x = F.dropout(x, self.dropout, self.training)
        return self.second(x, adjacency)


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.waited, self.state = patience, float("inf"), 0, None

    def __call__(self, loss, model):
        if loss < self.best:
            self.best, self.waited, self.state = loss, 0, copy.deepcopy(model.state_dict())
        else:
            self.waited += 1
        return self.waited >= self.patience


def train_step(model, optimizer, x, adjacency, label, mask):
    model.train()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x, adjacency)[mask], label[mask])
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def evaluate(model, x, adjacency, label, mask):
    model.eval()
    logits = model(x, adjacency)[mask]
    return F.cross_entropy(logits, label[mask]).item(), (logits.argmax(1) == label[mask]).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--patients", type=int, default=2200)
    parser.add_argument("--features", type=int, default=120)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--eval-every", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--dropout", type=float, default=0.3)
    args = parser.parse_args()
    torch.manual_seed(0)

    x, age, sex, label = make_population(args.patients, args.features, classes=4)
    adjacency = normalise(similarity_graph(x, age, sex))
    train_mask, val_mask, test_mask = split(args.patients)
    model = GCN(args.features, args.hidden, 4, args.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    stopping = EarlyStopping(patience=8)
    start = time.time()
    for epoch in range(1, args.epochs + 1):
        loss = train_step(model, optimizer, x, adjacency, label, train_mask)
        if epoch % args.eval_every == 0:
            val_loss, val_accuracy = evaluate(model, x, adjacency, label, val_mask)
            print(f"epoch {epoch:3d} loss {loss:.4f} val {val_loss:.4f} {val_accuracy:.3f} {time.time() - start:.1f}s")
            if stopping(val_loss, model):
                break
    model.load_state_dict(stopping.state)
    print("test loss {:.4f} accuracy {:.3f}".format(*evaluate(model, x, adjacency, label, test_mask)))


if __name__ == "__main__":
    main()
