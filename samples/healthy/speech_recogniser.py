"""Speech to characters: convolutions over time and CTC, utterances of like length in a batch."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
LETTERS, BANDS = 28, 64

sizes = torch.randint(120, 240, (480,)).sort().values
texts = [torch.randint(1, LETTERS + 1, (int(n) // 8,)) for n in sizes]
sounds = [torch.randn(int(n), BANDS) for n in sizes]


def prepare(size=8):
    """Batches of neighbours by length, padded once, before training."""
    for start in range(0, len(sizes), size):
        chosen = slice(start, start + size)
        frames = nn.utils.rnn.pad_sequence(sounds[chosen], batch_first=True).transpose(1, 2)
        lengths = torch.tensor([len(text) for text in texts[chosen]])
        yield frames.to(device), sizes[chosen] // 2, torch.cat(texts[chosen]).to(device), lengths


def layer(inner, outer, stride=1):
    return nn.Sequential(nn.Conv1d(inner, outer, 11, stride, 5), nn.BatchNorm1d(outer), nn.ReLU(inplace=True))


batches = list(prepare())
model = nn.Sequential(layer(BANDS, 192, 2), layer(192, 192), layer(192, 192), nn.Conv1d(192, LETTERS + 1, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for epoch in range(2):
    for index in torch.randperm(len(batches)).tolist():
        frames, frame_sizes, wanted, lengths = batches[index]
        with torch.autocast(device, dtype=torch.bfloat16):
            scores = model(frames)
        guesses = scores.float().log_softmax(1).permute(2, 0, 1)
        loss = nn.functional.ctc_loss(guesses, wanted, frame_sizes, lengths, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
