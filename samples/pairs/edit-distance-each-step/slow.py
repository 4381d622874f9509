"""Speech to characters with CTC; the character error rate of each batch is printed now and then."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
LETTERS, FRAMES, BANDS = 28, 120, 40


class Utterances(Dataset):
    def __init__(self, count):
        self.texts = [torch.randint(1, LETTERS + 1, (int(n),)) for n in torch.randint(30, 55, (count,))]
        sound = torch.randn(LETTERS + 1, BANDS)
        self.frames = [sound[t].repeat_interleave(FRAMES // len(t), 0) for t in self.texts]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.frames[index] + 0.3 * torch.randn_like(self.frames[index]), self.texts[index]


def collate(batch):
    frames, texts = zip(*batch)
    sizes = [torch.tensor([len(x) for x in xs]) for xs in (frames, texts)]
    return nn.utils.rnn.pad_sequence(frames, batch_first=True), sizes[0], torch.cat(texts), sizes[1]


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def error_rate(logits, frame_sizes, texts, text_sizes):
    wrong = 0
    for path, size, text in zip(logits.argmax(2), frame_sizes.tolist(), texts.split(text_sizes.tolist())):
        letters = torch.unique_consecutive(path[:size])
        wrong += edit_distance(letters[letters != 0].tolist(), text.tolist())
    return wrong / len(texts)


class Recogniser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.conv = nn.Conv1d(BANDS, width, 5, padding=2)
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, LETTERS + 1)

    def forward(self, x):
        x = torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.out(self.lstm(x)[0])


model, ctc = Recogniser(), nn.CTCLoss(zero_infinity=True)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
loader = DataLoader(Utterances(320), batch_size=16, shuffle=True, collate_fn=collate)
step = 0
for _ in range(6):
    for frames, frame_sizes, texts, text_sizes in loader:
        logits = model(frames)
        loss = ctc(logits.log_softmax(2).transpose(0, 1), texts, frame_sizes, text_sizes)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        cer = error_rate(logits.detach(), frame_sizes, texts, text_sizes)
        if step % 25 == 0:
            print(f"step {step}: loss {loss.item():.3f} cer {cer:.2f}")
        step += 1
