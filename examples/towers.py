"""Towers of readers and of books, trained by `LogLinearLoss` or by the dense softmax: see `recommender.py`."""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from books import Books
from torch import Tensor, nn
from torch.nn import functional

import lazygumbel as lg
from lazygumbel.progress import Progress
from lazygumbel.torch import LogLinearLoss

WIDTH = 64
BATCH = 512
LONGEST = 50
"""Books of a reader that the tower sees."""
LEARNING_RATE, FIRST_SQUARE = 0.05, 1e-6
REFRESHED = 25
"""Steps after which the index gets the books as they are then."""


class Batch(NamedTuple):
    """Readers as bags of books, end to end, and for each a book that was left out."""

    books: Tensor
    starts: Tensor
    target: Tensor

    @classmethod
    def of(cls, readers: list[np.ndarray], rng: np.random.Generator) -> "Batch":
        left_out = [int(rng.integers(len(reader))) for reader in readers]
        bags = [np.delete(reader, at)[:LONGEST] for reader, at in zip(readers, left_out, strict=True)]
        starts = np.cumsum([0, *(len(bag) for bag in bags[:-1])])
        target = np.array([reader[at] for reader, at in zip(readers, left_out, strict=True)])
        return cls(torch.tensor(np.concatenate(bags)), torch.tensor(starts), torch.tensor(target))


class BookTower(nn.Module):
    """A vector for each book: its own, that of its author, and a last column, its popularity."""

    def __init__(self, books: Books, *, sparse: bool) -> None:
        super().__init__()
        self.book = nn.Embedding(books.n, WIDTH, sparse=sparse)
        self.author = nn.Embedding(books.authors, WIDTH, sparse=sparse)
        self.bias = nn.Embedding(books.n, 1, sparse=sparse)
        self.register_buffer("author_of", torch.tensor(books.author_of), persistent=False)
        nn.init.normal_(self.book.weight, std=0.02)
        nn.init.normal_(self.author.weight, std=0.1)
        read = np.log(np.bincount(np.concatenate(books.readers), minlength=books.n) + 0.5)
        with torch.no_grad():
            self.bias.weight[:, 0] = torch.tensor(read - read.mean())

    def forward(self, ids: Tensor) -> Tensor:
        return torch.cat([self.book(ids) + self.author(self.author_of[ids]), self.bias(ids)], dim=1)


class ReaderTower(nn.Module):
    """Theta, from the books that a reader knows; the last column is one, for popularities."""

    def __init__(self, books: Books, *, sparse: bool) -> None:
        super().__init__()
        self.book = nn.EmbeddingBag(books.n, WIDTH, sparse=sparse)
        self.author = nn.EmbeddingBag(books.authors, WIDTH, sparse=sparse)
        self.register_buffer("author_of", torch.tensor(books.author_of), persistent=False)
        self.network = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))
        for table in (self.book, self.author):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, batch: Batch) -> Tensor:
        bags = self.book(batch.books, batch.starts) + self.author(self.author_of[batch.books], batch.starts)
        theta = self.network(bags)
        return torch.cat([theta, theta.new_ones(len(theta), 1)], dim=1)


class Towers:
    """Both towers with their optimiser: Adagrad, which takes gradients of some rows as well as of all."""

    def __init__(self, books: Books, *, sparse: bool) -> None:
        torch.manual_seed(0)
        self.reader, self.book = ReaderTower(books, sparse=sparse), BookTower(books, sparse=sparse)
        self.all = torch.arange(books.n)
        parameters = [*self.reader.parameters(), *self.book.parameters()]
        self.optimiser = torch.optim.Adagrad(parameters, lr=LEARNING_RATE, initial_accumulator_value=FIRST_SQUARE)

    def step(self, batch: Batch, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.optimiser.zero_grad()
        loss(self.reader(batch), batch.target).backward()
        self.optimiser.step()

    def dense_loss(self, theta: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(theta @ self.book(self.all).T, target)

    @torch.no_grad()
    def thetas(self, batch: Batch) -> np.ndarray:
        return self.reader(batch).numpy()

    @torch.no_grad()
    def vectors(self) -> np.ndarray:
        return self.book(self.all).numpy()

    @torch.no_grad()
    def score(self, held_out: Batch) -> tuple[float, float]:
        """Exact mean log-likelihood of the books left out, and how often they are among the best 20."""
        vectors, likelihood, found = self.book(self.all), 0.0, 0
        for theta, target in zip(self.reader(held_out).split(64), held_out.target.split(64), strict=True):
            logits = theta @ vectors.T
            likelihood -= float(functional.cross_entropy(logits, target, reduction="sum"))
            found += int((logits.topk(20).indices == target[:, None]).sum())
        return likelihood / len(held_out.target), found / len(held_out.target)


class Lazy:
    """Towers with the loss by lazygumbel, whose index is over the books as they were some steps ago."""

    def __init__(self, books: Books, bars: Progress) -> None:
        self.towers = Towers(books, sparse=True)
        index = lg.PartitionIndex.build(self.towers.vectors(), rng=0, progress=bars)
        self.loss = LogLinearLoss(lg.LogLinear(index), rng=0)
        self.steps = 0

    def step(self, batch: Batch) -> None:
        """A step, and every now and then a refreshed index."""
        self.towers.step(batch, lambda theta, target: self.loss(theta, target, self.towers.book))
        self.steps += 1
        if self.steps % REFRESHED == 0:
            self.loss.refresh(self.towers.book, progress=False)


def timed(label: str, batches: list[Batch], step: Callable[[Batch], None], bars: Progress) -> list[float]:
    """Seconds of each step."""
    seconds: list[float] = []
    with bars.task(label, len(batches)) as task:
        for batch in batches:
            start = time.perf_counter()
            step(batch)
            seconds.append(time.perf_counter() - start)
            task.advance(1)
    return seconds
