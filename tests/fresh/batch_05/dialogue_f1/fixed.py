"""Replies in a dialogue by an encoder and a decoder; metrics compare their words with the wanted ones."""

import random
import string
from collections import Counter

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

PAD, START, END = 0, 1, 2
ARTICLES = {"a", "an", "the"}


class Dictionary:
    def __init__(self, texts):
        words = sorted({word for text in texts for word in text.split()})
        self.words = ["<pad>", "<s>", "</s>", *words]
        self.index = {word: index for index, word in enumerate(self.words)}

    def encode(self, text):
        return torch.tensor([*(self.index[word] for word in text.split()), END])

    def decode(self, ids):
        words = []
        for index in ids:
            if index == END:
                break
            words.append(self.words[index])
        return " ".join(words)


def make_dialogues(count, seed):
    """A question about two things and a place, and some replies that are all right; the first one is to be learnt."""
    rng = random.Random(seed)
    things = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 7))) for _ in range(300)]
    pairs = []
    for _ in range(count):
        first, second, place = rng.sample(things, 3)
        question = f"is the {first} next to a {second} in the {place} or is it gone ?"
        replies = [
            f"yes , the {second} and the {first} are in the {place} , as they were .",
            f"yes , the {first} and the {second} are both in the {place} , as before .",
            f"it is still there , the {first} stands next to the {second} .",
            f"no , the {first} is not gone , it is in the {place} with the {second} .",
            f"the {second} is in the {place} , and so is the {first} , I think .",
        ]
        pairs.append((question, replies))
    return pairs


def normalize_answer(text):
    text = text.lower()
    text = "".join(character if character not in string.punctuation else " " for character in text)
    return [word for word in text.split() if word not in ARTICLES]


def prec_recall_f1_score(guess, answer):
    guess, answer = normalize_answer(guess), normalize_answer(answer)
    same = sum((Counter(guess) & Counter(answer)).values())
    if same == 0:
        return 0.0, 0.0, 0.0
    precision, recall = same / len(guess), same / len(answer)
    return precision, recall, 2 * precision * recall / (precision + recall)


class TeacherMetrics:
    def __init__(self):
        self.clear()

    def clear(self):
        self.sums, self.count = Counter(), 0

    def evaluate_response(self, guess, answers):
        scores = [prec_recall_f1_score(guess, answer) for answer in answers]
        precision, recall, f1 = (max(column) for column in zip(*scores))
        self.sums["precision"] += precision
        self.sums["recall"] += recall
        self.sums["f1"] += f1
        self.count += 1

    def report(self):
        return {name: value / self.count for name, value in self.sums.items()}


class Seq2Seq(nn.Module):
    def __init__(self, words, dim=64, hidden=128):
        super().__init__()
        self.embedding = nn.Embedding(words, dim, padding_idx=PAD)
        self.encoder = nn.GRU(dim, hidden, batch_first=True)
        self.decoder = nn.GRU(dim, hidden, batch_first=True)
        self.mix = nn.Linear(2 * hidden, dim)

    def forward(self, questions, replies):
        memory, state = self.encoder(self.embedding(questions))
        outputs, _ = self.decoder(self.embedding(replies), state)
        weights = (outputs @ memory.transpose(1, 2)).masked_fill((questions == PAD)[:, None], -1e9).softmax(dim=-1)
        mixed = torch.tanh(self.mix(torch.cat((outputs, weights @ memory), dim=-1)))
        return mixed @ self.embedding.weight.t()


class GeneratorAgent:
    """Learns with the wanted reply before its eyes, and keeps metrics of what it would have said."""

    def __init__(self, dictionary, lr=2e-3):
        self.dictionary = dictionary
        self.model = Seq2Seq(len(dictionary.words))
        self.criterion = nn.CrossEntropyLoss(ignore_index=PAD)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr, fused=True)
        self.metrics = TeacherMetrics()

    def train_step(self, questions, replies, answers):
        starts = torch.full((len(replies), 1), START)
        logits = self.model(questions, torch.cat((starts, replies[:, :-1]), dim=1))
        loss = self.criterion(logits.flatten(0, 1), replies.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        for ids, texts in zip(logits.detach().argmax(dim=-1).tolist(), answers):
            self.metrics.evaluate_response(self.dictionary.decode(ids), texts)
        return loss.detach()


def main():
    torch.manual_seed(4670)
    dialogues = make_dialogues(3200, seed=4671)
    dictionary = Dictionary([text for question, answers in dialogues for text in (question, answers[0])])
    questions = pad_sequence([dictionary.encode(question) for question, _ in dialogues], batch_first=True)
    replies = pad_sequence([dictionary.encode(answers[0]) for _, answers in dialogues], batch_first=True)
    agent = GeneratorAgent(dictionary)
    for epoch in range(3):
        losses = []
        for rows in torch.randperm(len(dialogues)).split(64):
            answers = [dialogues[row][1] for row in rows.tolist()]
            losses.append(agent.train_step(questions[rows], replies[rows], answers))
        report = " ".join(f"{name} {value:.3f}" for name, value in agent.metrics.report().items())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f} {report}")
        agent.metrics.clear()


if __name__ == "__main__":
    main()
