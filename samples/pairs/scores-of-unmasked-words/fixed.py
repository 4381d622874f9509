"""Masked language modelling of amino acids in pieces of three: ten of 64 are hidden and guessed."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
PIECES, MASK, LENGTH, HIDDEN, WIDTH, IGNORED = 4000, 4000, 64, 10, 96, -100


class MaskedModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.piece = nn.Embedding(PIECES + 1, WIDTH)
        self.place = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, PIECES)

    def forward(self, pieces, labels):
        x = self.encoder(self.piece(pieces) + self.place)
        asked = labels != IGNORED
        scores = self.head(x[asked])
        return nn.functional.cross_entropy(scores.float(), labels[asked]), scores


def hide(pieces):
    """Hides ten pieces of each protein; labels are IGNORED everywhere else."""
    hidden = torch.rand(pieces.shape, device=pieces.device).argsort(1) < HIDDEN
    return pieces.masked_fill(hidden, MASK), pieces.masked_fill(~hidden, IGNORED)


proteins = (torch.rand(800, 1, device=device) * PIECES + torch.arange(LENGTH, device=device) * 37).long() % PIECES
model = MaskedModel().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
for epoch in range(2):
    for rows in torch.randperm(len(proteins), device=device).split(8):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss, _ = model(*hide(proteins[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
