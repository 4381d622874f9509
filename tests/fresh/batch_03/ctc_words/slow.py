"""Speech to letters with CTC: convolutions over time, greedy decoding and error rates."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ALPHABET = "_ abcdefghijklmnopqrstuvwxyz"  # the first is the blank
FEATURES = 40


def edit_distance(reference, hypothesis):
    previous = list(range(len(hypothesis) + 1))
    for i, wanted in enumerate(reference, 1):
        current = [i]
        for j, got in enumerate(hypothesis, 1):
            current.append(min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (wanted != got)))
        previous = current
    return previous[-1]


class GreedyDecoder:
    def __init__(self, alphabet):
        self.alphabet = alphabet

    def decode(self, log_probs):
        """Letters of each utterance: repeats merged, blanks left out."""
        texts = []
        for best in log_probs.argmax(dim=2).t().tolist():
            letters = [b for a, b in zip([0, *best], best) if b not in (0, a)]
            texts.append("".join(self.alphabet[letter] for letter in letters))
        return texts

    def error_rates(self, log_probs, references):
        letters = words = letter_errors = word_errors = 0
        for text, reference in zip(self.decode(log_probs), references):
            letter_errors += edit_distance(reference, text)
            word_errors += edit_distance(reference.split(), text.split())
            letters, words = letters + len(reference), words + len(reference.split())
        return letter_errors / letters, word_errors / words


class Utterances(Dataset):
    """Each letter sounds like a noisy vector that lasts for four frames."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        sounds = torch.randn(len(ALPHABET), FEATURES, generator=generator)
        self.items = []
        for _ in range(count):
            letters = torch.randint(1, len(ALPHABET), (64,), generator=generator)
            letters[5::6] = 1
            frames = sounds[letters].repeat_interleave(4, dim=0)
            noisy = frames + 0.4 * torch.randn(frames.shape, generator=generator)
            self.items.append((noisy.t().contiguous(), letters, "".join(ALPHABET[i] for i in letters.tolist())))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Wav2Letter(nn.Module):
    """Convolutions over time, the first one halves the number of frames."""

    def __init__(self, hidden=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(FEATURES, hidden, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv1d(hidden, hidden, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(hidden, len(ALPHABET), 1),
        )

    def forward(self, x):
        return self.layers(x).permute(2, 0, 1).log_softmax(dim=2)


class Trainer:
    def __init__(self, config):
        self.config = config
        self.model = Wav2Letter()
        self.decoder = GreedyDecoder(ALPHABET)
        self.criterion = nn.CTCLoss(zero_infinity=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config["lr"])
        self.loader = DataLoader(Utterances(config["utterances"], 3), batch_size=config["batch_size"], shuffle=True)

    def train_epoch(self, epoch):
        for i, (inputs, targets, texts) in enumerate(self.loader):
            log_probs = self.model(inputs)
            lengths = torch.full((len(inputs),), len(log_probs), dtype=torch.long)
            loss = self.criterion(log_probs, targets, lengths, torch.full((len(inputs),), targets.size(1)))
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            cer, wer = self.decoder.error_rates(log_probs.detach(), texts)
            if i % self.config["display_step"] == 0:
                print(f"epoch {epoch} step {i}: loss {loss.item():.3f} CER {cer:.3f} WER {wer:.3f}")

    def fit(self):
        for epoch in range(self.config["epochs"]):
            self.train_epoch(epoch)


if __name__ == "__main__":
    torch.manual_seed(30)
    Trainer({"lr": 4e-3, "utterances": 960, "batch_size": 16, "epochs": 2, "display_step": 10}).fit()
