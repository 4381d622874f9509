"""Fast neural style with a small fixed feature network."""

import argparse
import itertools
import tempfile

import torch
from torch import nn


class LossFeatures(nn.Module):
    """Four slices of a fixed network; the weights are random orthogonal filters."""

    def __init__(self, width=16):
        super().__init__()
        chans = [3, width, width * 2, width * 2, width * 4]
        self.slices = nn.ModuleList()
        for i, (a, b) in enumerate(itertools.pairwise(chans)):
            conv = nn.Conv2d(a, b, 3, padding=1)
            nn.init.orthogonal_(conv.weight, 1.4)
            self.slices.append(nn.Sequential(*([nn.MaxPool2d(2)] if i else []), conv, nn.ReLU()))
        self.requires_grad_(False)

    def forward(self, x):
        features = []
        for part in self.slices:
            x = part(x)
            features.append(x)
        return features


class TransformerNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()

        def conv(a, b, k, s):
            return [nn.ReflectionPad2d(k // 2), nn.Conv2d(a, b, k, s), nn.InstanceNorm2d(b, affine=True), nn.ReLU()]

        self.model = nn.Sequential(
            *conv(3, width, 5, 1),
            *conv(width, 2 * width, 3, 2),
            *conv(2 * width, 2 * width, 3, 1),
            nn.Upsample(scale_factor=2),
            *conv(2 * width, width, 3, 1),
            nn.ReflectionPad2d(2),
            nn.Conv2d(width, 3, 5),
        )

    def forward(self, x):
        return self.model(x)


def gram_matrix(y):
    b, c, h, w = y.shape
    flat = y.view(b, c, h * w)
    return flat @ flat.transpose(1, 2) / (c * h * w)


def pictures(count, size):
    g = torch.Generator().manual_seed(0)
    low = torch.randn(count, 3, 6, 6, generator=g)
    return nn.functional.interpolate(low, size=size, mode="bicubic") + 0.05 * torch.randn(
        count, 3, size, size, generator=g
    )


def style_picture(size):
    ys, xs = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    return torch.stack([torch.sin(xs / 3.0), torch.cos((xs + ys) / 4.0), torch.sin(ys / 2.0)])[None]


def train(args):
    torch.manual_seed(args.seed)
    data = pictures(args.images, args.image_size)
    transformer, vgg = TransformerNet(), LossFeatures()
    optimizer = torch.optim.Adam(transformer.parameters(), args.lr)
    mse = nn.MSELoss()
    style = style_picture(args.style_size)
    with tempfile.TemporaryDirectory() as checkpoints:
        count = 0
        for e in range(args.epochs):
            agg_content = agg_style = 0.0
            for x in data[torch.randperm(len(data))].split(args.batch_size):
                count += 1
                optimizer.zero_grad()
                y = transformer(x)
                features_y, features_x = vgg(y), vgg(x)
                content_loss = args.content_weight * mse(features_y[1], features_x[1])
                grams_style = [gram_matrix(s) for s in vgg(style)]
                style_loss = args.style_weight * sum(
                    mse(gram_matrix(f), gm.expand(len(x), -1, -1)) for f, gm in zip(features_y, grams_style)
                )
                (content_loss + style_loss).backward()
                optimizer.step()
                agg_content += content_loss.item()
                agg_style += style_loss.item()
                if count % args.log_interval == 0:
                    print(f"Epoch {e + 1}: [{count}] content: {agg_content / count:.5f} style: {agg_style / count:.5f}")
            torch.save(transformer.state_dict(), f"{checkpoints}/ckpt_epoch_{e}.pth")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--images", type=int, default=520)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--image-size", type=int, default=40)
    parser.add_argument("--style-size", type=int, default=112)
    parser.add_argument("--content-weight", type=float, default=1.0)
    parser.add_argument("--style-weight", type=float, default=1e4)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--log-interval", type=int, default=30)
    parser.add_argument("--seed", type=int, default=42)
    train(parser.parse_args())
