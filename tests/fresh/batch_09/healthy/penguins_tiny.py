"""Three species of penguins from four measurements: a few hundred weights, data in memory, large batches."""

import argparse

import torch
from torch import nn


def penguins(count, seed):
    """Bill length and depth, flipper and mass, standardised, and the species."""
    g = torch.Generator().manual_seed(seed)
    means = torch.tensor([[38.8, 18.3, 190.0, 3.7], [48.8, 18.4, 195.8, 3.7], [47.5, 15.0, 217.2, 5.1]])
    spreads = torch.tensor([[2.7, 1.2, 6.5, 0.46], [3.3, 1.1, 7.1, 0.38], [3.1, 1.0, 6.5, 0.50]])
    species = torch.randint(0, 3, (count,), generator=g)
    measured = means[species] + spreads[species] * torch.randn(count, 4, generator=g)
    return (measured - measured.mean(0)) / measured.std(0), species


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--penguins", type=int, default=131072)
    parser.add_argument("--batch-size", type=int, default=16384)
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--hidden", type=int, default=24)
    args = parser.parse_args()
    torch.manual_seed(0)
    measured, species = penguins(args.penguins, seed=60)
    held_out = args.penguins // 16
    test, test_species = measured[:held_out], species[:held_out]
    train, train_species = measured[held_out:], species[held_out:]
    model = nn.Sequential(nn.Linear(4, args.hidden), nn.Tanh(), nn.Linear(args.hidden, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=True)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)
    for epoch in range(args.epochs):
        order = torch.randperm(len(train))
        for start in range(0, len(train) - args.batch_size + 1, args.batch_size):
            index = order[start : start + args.batch_size]
            loss = nn.functional.cross_entropy(model(train[index]), train_species[index])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        schedule.step()
        if (epoch + 1) % 20 == 0:
            with torch.inference_mode():
                right = (model(test).argmax(1) == test_species).float().mean()
            print(f"epoch {epoch + 1}: last loss {loss.item():.4f}, of unseen penguins {right.item():.3f} right")


if __name__ == "__main__":
    main()
