"""Products on shelves as a set: a small detection transformer whose queries are matched to the boxes of a picture."""

import numpy as np
import torch
import torch.nn.functional as F
from boxes import aligned_generalized_iou, corners, generalized_iou
from torch import nn

KINDS, QUERIES, SIDE = 5, 60, 64


def make_shelves(count, seed):
    gen = torch.Generator().manual_seed(seed)
    pictures, targets = 0.1 * torch.randn(count, 3, SIDE, SIDE, generator=gen), []
    for picture in pictures:
        number = int(torch.randint(10, 22, (1,), generator=gen))
        size = 0.08 + 0.12 * torch.rand(number, 2, generator=gen)
        centre = 0.1 + 0.8 * torch.rand(number, 2, generator=gen)
        labels = torch.randint(KINDS, (number,), generator=gen)
        boxes = torch.cat([centre, size], 1)
        for (x0, y0, x1, y1), label in zip((corners(boxes) * SIDE).int().clamp(min=0).tolist(), labels.tolist()):
            picture[:, y0:y1, x0:x1] += torch.tensor([label, KINDS - label, 2.0])[:, None, None] / KINDS
        targets.append({"labels": labels, "boxes": boxes})
    return pictures, targets


def assign(cost):
    """Each target in turn takes the cheapest query that is still free."""
    cost, taken = np.array(cost), []
    for column in range(cost.shape[1]):
        row = int(cost[:, column].argmin())
        cost[row] = np.inf
        taken.append(row)
    return torch.tensor(taken), torch.arange(len(taken))


class Matcher(nn.Module):
    def __init__(self, cost_class=1.0, cost_box=5.0, cost_iou=2.0):
        super().__init__()
        self.cost_class, self.cost_box, self.cost_iou = cost_class, cost_box, cost_iou

    def cost(self, logits, boxes, labels, wanted):
        chance = logits.softmax(-1)[:, labels]
        distance = torch.cdist(boxes, wanted, p=1)
        overlap = generalized_iou(corners(boxes), corners(wanted))
        return self.cost_box * distance - self.cost_class * chance - self.cost_iou * overlap

    @torch.no_grad()
    def forward(self, logits, boxes, targets):
        costs = [self.cost(*of, t["labels"], t["boxes"]) for *of, t in zip(logits, boxes, targets)]
        return [assign(cost.numpy()) for cost in costs]


class ShelfTransformer(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        layers, inputs = [], 3
        for outputs in (16, 32, width):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.GroupNorm(4, outputs), nn.ReLU(inplace=True)]
            inputs = outputs
        self.backbone = nn.Sequential(*layers)
        self.place = nn.Parameter(torch.randn(64, width) * 0.1)
        self.queries = nn.Parameter(torch.randn(QUERIES, width))
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True), 1
        )
        self.kind, self.box = nn.Linear(width, KINDS + 1), nn.Linear(width, 4)

    def forward(self, x):
        memory = self.backbone(x).flatten(2).transpose(1, 2) + self.place
        h = self.decoder(self.queries.expand(len(x), -1, -1), memory)
        return self.kind(h), self.box(h).sigmoid()


def set_loss(logits, boxes, targets, matches):
    classes = torch.full(logits.shape[:2], KINDS)
    for i, (rows, columns) in enumerate(matches):
        classes[i, rows] = targets[i]["labels"][columns]
    weight = torch.ones(KINDS + 1)
    weight[-1] = 0.1
    kinds = F.cross_entropy(logits.transpose(1, 2), classes, weight)
    found = torch.cat([boxes[i, rows] for i, (rows, _) in enumerate(matches)])
    wanted = torch.cat([targets[i]["boxes"][columns] for i, (_, columns) in enumerate(matches)])
    overlap = aligned_generalized_iou(corners(found), corners(wanted))
    return kinds + 5 * F.l1_loss(found, wanted) + 2 * (1 - overlap).mean()


def main():
    torch.manual_seed(0)
    pictures, targets = make_shelves(768, seed=2)
    model, matcher = ShelfTransformer(), Matcher()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-4)
    for epoch in range(5):
        for rows in torch.randperm(len(pictures)).split(32):
            logits, boxes = model(pictures[rows])
            wanted = [targets[row] for row in rows.tolist()]
            loss = set_loss(logits, boxes, wanted, matcher(logits, boxes, wanted))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
