"""Two-stage detection in drone pictures: a region proposal network, suppression, and a head on pooled regions."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

SIZE, STRIDE, ANCHORS = 96, 8, (10.0, 18.0, 28.0)


def drone_pictures(count, seed):
    g = torch.Generator().manual_seed(seed)
    images = 0.3 * torch.randn(count, 3, SIZE, SIZE, generator=g)
    targets = []
    for image in images:
        n = int(torch.randint(2, 6, (1,), generator=g))
        sides = torch.randint(8, 26, (n, 2), generator=g)
        corner = (torch.rand(n, 2, generator=g) * (SIZE - sides)).long()
        labels = torch.randint(1, 4, (n,), generator=g)
        for (x, y), (w, h), label in zip(corner.tolist(), sides.tolist(), labels.tolist()):
            image[label - 1, y : y + h, x : x + w] += 1.5
        targets.append({"boxes": torch.cat([corner, corner + sides], 1).float(), "labels": labels})
    return images, targets


def box_iou(a, b):
    size = (torch.minimum(a[:, None, 2:], b[:, 2:]) - torch.maximum(a[:, None, :2], b[:, :2])).clamp(min=0)
    inter = size.prod(2)
    return inter / ((a[:, 2:] - a[:, :2]).prod(1)[:, None] + (b[:, 2:] - b[:, :2]).prod(1) - inter)


def nms(boxes, scores, threshold):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        first = order[0]
        keep.append(first)
        overlap = box_iou(boxes[first][None], boxes[order[1:]])[0]
        order = order[1:][overlap <= threshold]
    return torch.stack(keep)


def decode(anchors, deltas):
    sides = anchors[:, 2:] - anchors[:, :2]
    centres = anchors[:, :2] + sides / 2 + deltas[:, :2] * sides
    half = sides * deltas[:, 2:].clamp(max=2).exp() / 2
    return torch.cat([centres - half, centres + half], 1).clamp(0, SIZE)


def encode(anchors, boxes):
    sides, want = anchors[:, 2:] - anchors[:, :2], boxes[:, 2:] - boxes[:, :2]
    shift = (boxes[:, :2] + want / 2 - anchors[:, :2] - sides / 2) / sides
    return torch.cat([shift, (want / sides).log()], 1)


class Detector(nn.Module):
    def __init__(self, chans=32, before=300, after=48, threshold=0.7):
        super().__init__()
        self.before, self.after, self.threshold = before, after, threshold
        layers, a = [], 3
        for b in (16, 24, chans):
            layers += [nn.Conv2d(a, b, 3, 2, 1), nn.GroupNorm(4, b), nn.ReLU()]
            a = b
        self.backbone = nn.Sequential(*layers)
        self.rpn = nn.Sequential(nn.Conv2d(chans, chans, 3, 1, 1), nn.ReLU())
        self.objectness, self.deltas = nn.Conv2d(chans, 3, 1), nn.Conv2d(chans, 12, 1)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(chans * 16, 64), nn.ReLU())
        self.classes, self.refine = nn.Linear(64, 4), nn.Linear(64, 4)
        side = SIZE // STRIDE
        centre = (torch.arange(side) + 0.5) * STRIDE
        y, x = torch.meshgrid(centre, centre, indexing="ij")
        half = torch.tensor(ANCHORS)[None, None] / 2
        x, y = x[..., None], y[..., None]
        self.register_buffer("anchors", torch.stack([x - half, y - half, x + half, y + half], 3).view(-1, 4))

    def proposals(self, objectness, deltas):
        boxes = decode(self.anchors, deltas)
        scores, index = objectness.topk(self.before)
        boxes = boxes[index]
        large = ((boxes[:, 2:] - boxes[:, :2]) > 2).all(1)
        boxes, scores = boxes[large], scores[large]
        return boxes[nms(boxes, scores, self.threshold)[: self.after]]

    def losses(self, images, targets):
        feature = self.backbone(images)
        hidden = self.rpn(feature)
        objectness = self.objectness(hidden).permute(0, 2, 3, 1).flatten(1)
        deltas = self.deltas(hidden).permute(0, 2, 3, 1).reshape(len(images), -1, 4)
        regions, wanted, loss = [], [], 0.0
        for scores, delta, target in zip(objectness, deltas, targets):
            overlap, match = box_iou(self.anchors, target["boxes"]).max(1)
            pos, used = overlap > 0.5, (overlap > 0.5) | (overlap < 0.3)
            loss = loss + F.binary_cross_entropy_with_logits(scores[used], pos[used].float())
            goal = encode(self.anchors[pos], target["boxes"][match[pos]])
            loss = loss + F.smooth_l1_loss(delta[pos], goal, reduction="sum") / max(len(goal), 1)
            with torch.no_grad():
                boxes = torch.cat([self.proposals(scores, delta), target["boxes"]])
            overlap, match = box_iou(boxes, target["boxes"]).max(1)
            labels = target["labels"][match] * (overlap > 0.5)
            regions.append(boxes)
            wanted.append((labels, encode(boxes, target["boxes"][match])))
        pooled = self.head(torchvision.ops.roi_align(feature, regions, 4, 1 / STRIDE))
        labels, goals = (torch.cat(part) for part in zip(*wanted))
        pos = labels > 0
        loss = loss / len(images) + F.cross_entropy(self.classes(pooled), labels)
        return loss + F.smooth_l1_loss(self.refine(pooled)[pos], goals[pos])


def main(epochs=2, batch=2):
    torch.manual_seed(0)
    images, targets = drone_pictures(150, 0)
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(epochs):
        order, total = torch.randperm(len(images)).split(batch), 0.0
        for index in order:
            loss = model.losses(images[index], [targets[i] for i in index.tolist()])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(order):.4f}")


if __name__ == "__main__":
    main()
