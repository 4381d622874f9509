"""Deblurring: a residual generator trained on pixels and on the features of a network that sees details."""

import torch
from torch import nn
from torch.nn import functional as F


class Features(nn.Sequential):
    """The lower part of a VGG; its weights stand for those of a trained one."""

    def __init__(self):
        layers, inp = [], 3
        for out in (24, 24, "pool", 48, 48):
            if out == "pool":
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(inp, out, 3, padding=1), nn.ReLU(inplace=True)]
                inp = out
        super().__init__(*layers)
        state = torch.random.get_rng_state()
        torch.manual_seed(1234)
        for layer in self:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight)
        torch.random.set_rng_state(state)


class PerceptualLoss:
    def __init__(self):
        self.content = Features().eval()
        self.criterion = nn.MSELoss()

    def get_loss(self, fake, real):
        with torch.no_grad():
            wanted = self.content(real)
        return self.criterion(self.content(fake), wanted)


class ResnetBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(dim, dim, 3, padding=1), nn.Conv2d(dim, dim, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(x)))


class Generator(nn.Module):
    def __init__(self, dim=8, blocks=2):
        super().__init__()
        self.down = nn.Conv2d(3, dim, 4, stride=2, padding=1)
        self.blocks = nn.Sequential(*[ResnetBlock(dim) for _ in range(blocks)])
        self.up = nn.ConvTranspose2d(dim, 3, 4, stride=2, padding=1)

    def forward(self, x):
        return x + self.up(F.relu(self.blocks(F.relu(self.down(x)))))


def sharp_images(count):
    """Random half planes, three of them in each picture."""
    grid = torch.linspace(-1, 1, 64)
    angle, shift = 6.28 * torch.rand(count, 3, 1, 1), torch.rand(count, 3, 1, 1) - 0.5
    return (torch.cos(angle) * grid + torch.sin(angle) * grid[:, None] > shift).float()


def blur(images):
    kernel = torch.ones(3, 1, 1, 7) / 7
    return F.conv2d(images, kernel, padding=(0, 3), groups=3)


class DeblurModel:
    def __init__(self, opt):
        self.opt = opt
        self.netG = Generator()
        self.content_loss = PerceptualLoss()
        self.optimizer = torch.optim.Adam(self.netG.parameters(), lr=opt["lr"], betas=(0.5, 0.999))

    def optimize_parameters(self, blurred, sharp):
        fake = self.netG(blurred)
        self.optimizer.zero_grad()
        loss = F.l1_loss(fake, sharp) + self.opt["lambda_A"] * self.content_loss.get_loss(fake, sharp)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def train(opt):
    torch.manual_seed(140)
    sharp = sharp_images(opt["images"])
    blurred = blur(sharp)
    model = DeblurModel(opt)
    for epoch in range(opt["epochs"]):
        losses = []
        for rows in torch.randperm(len(sharp)).split(opt["batch"]):
            losses.append(model.optimize_parameters(blurred[rows], sharp[rows]))
        print(f"epoch {epoch}, loss {sum(losses) / len(losses):.5f}")


if __name__ == "__main__":
    train({"lr": 1e-3, "lambda_A": 0.05, "images": 192, "batch": 6, "epochs": 3})
