"""The training loop that several experiments share."""

import torch


def train_one_epoch(model, loss_of, batches, optimizer, schedule, log_every=20):
    """One pass over the batches; gives the mean loss. `loss_of(model, batch)` is what an experiment is about."""
    model.train()
    losses = []
    for number, batch in enumerate(batches):
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if number % log_every == 0:
            print(f"  {number}: loss {losses[-1].item():.4f}, rate {schedule.get_last_lr()[0]:.2e}")
    return torch.stack(losses).mean().item()
