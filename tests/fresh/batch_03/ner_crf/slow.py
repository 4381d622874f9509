"""Named entities with a BiLSTM and a conditional random field on top."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

TAGS = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"]
VOCABULARY = 2000


class CRF(nn.Module):
    """Linear chain: scores of tag sequences and their normaliser."""

    def __init__(self, tagset_size):
        super().__init__()
        self.tagset_size = tagset_size
        self.transitions = nn.Parameter(0.1 * torch.randn(tagset_size, tagset_size))  # to, from
        self.start = nn.Parameter(0.1 * torch.randn(tagset_size))
        self.stop = nn.Parameter(0.1 * torch.randn(tagset_size))

    def normaliser(self, feats, mask):
        """Log of the summed scores of all paths, for each sentence."""
        alpha = self.start + feats[:, 0]
        for t in range(1, feats.size(1)):
            alphas_t = []
            for next_tag in range(self.tagset_size):
                emit_score = feats[:, t, next_tag].unsqueeze(1)
                tag_scores = alpha + self.transitions[next_tag] + emit_score
                alphas_t.append(torch.logsumexp(tag_scores, dim=1))
            alpha = torch.where(mask[:, t, None], torch.stack(alphas_t, dim=1), alpha)
        return torch.logsumexp(alpha + self.stop, dim=1)

    def path_score(self, feats, tags, mask):
        emitted = (feats.gather(2, tags[:, :, None]).squeeze(2) * mask).sum(dim=1)
        moved = (self.transitions[tags[:, 1:], tags[:, :-1]] * mask[:, 1:]).sum(dim=1)
        last = tags.gather(1, mask.sum(dim=1, keepdim=True) - 1).squeeze(1)
        return emitted + moved + self.start[tags[:, 0]] + self.stop[last]

    def forward(self, feats, tags, mask):
        return (self.normaliser(feats, mask) - self.path_score(feats, tags, mask)).mean()


class BiLSTMCRF(nn.Module):
    def __init__(self, vocab_size, tagset_size, embedding_dim=64, hidden_dim=96):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=0)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim // 2, bidirectional=True, batch_first=True)
        self.hidden2tag = nn.Linear(hidden_dim, tagset_size)
        self.crf = CRF(tagset_size)

    def neg_log_likelihood(self, sentences, tags):
        mask = sentences != 0
        states, _ = self.lstm(self.embedding(sentences))
        return self.crf(self.hidden2tag(states), tags, mask)


def make_corpus(sentences, generator):
    """Words say their tag now and then."""
    corpus = []
    for length in torch.randint(14, 23, (sentences,), generator=generator).tolist():
        words = torch.randint(1, VOCABULARY, (length,), generator=generator)
        tags = torch.where(words % 5 == 0, words % len(TAGS), 0)
        corpus.append((words, tags))
    return sorted(corpus, key=lambda pair: len(pair[0]))


def make_batches(corpus, batch_size):
    batches = []
    for start in range(0, len(corpus), batch_size):
        words, tags = zip(*corpus[start : start + batch_size])
        batches.append((pad_sequence(words, batch_first=True), pad_sequence(tags, batch_first=True)))
    return batches


def main():
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(2)
    batches = make_batches(make_corpus(1280, generator), 32)
    model = BiLSTMCRF(VOCABULARY, len(TAGS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=1e-4)
    for epoch in range(6):
        total = 0.0
        for index in torch.randperm(len(batches), generator=generator).tolist():
            sentences, tags = batches[index]
            model.zero_grad()
            loss = model.neg_log_likelihood(sentences, tags)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(batches):.4f}")


if __name__ == "__main__":
    main()
