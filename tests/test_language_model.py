"""The example that writes text and the heads it is compared with, on a tiny made-up model: nothing is downloaded."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import lazygumbel as lg
from statistics_helpers import chi_square_p, make_rows

ROOT = Path(__file__).parent.parent
WORDS = ["<unk>", "<end>", *(f"word{i}" for i in range(298))]


def imported(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tested_{Path(path).stem}", ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transformers: a Llama of one layer with random weights, and a word for every token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("tiny")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    packed = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<end>")
    packed.save_pretrained(path)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), initializer_range=0.5, **sizes)).save_pretrained(path)
    return path


@pytest.mark.filterwarnings("ignore")  # of other people's packages
@pytest.mark.parametrize("top_p", [1.0, 0.5])
def test_the_example_writes_a_text_by_both_heads(folder, tmp_path, capsys, top_p):
    example = imported("examples/language_model.py")
    words = [str(folder), "--prompt", "word1 word2", "--tokens", "8", "--top-p", str(top_p)]
    example.main([*words, "--cache", str(tmp_path), "--states", str(tmp_path / "states")])
    printed = capsys.readouterr().out
    distances = re.search(r"distance of lazygumbel's draws: (.*)label: exact", printed, re.DOTALL)
    assert distances is not None
    assert all(float(x) < 1e-9 for x in re.findall(r"([\d.e-]+) at\s+\d+", distances[1]))
    texts = re.findall(r"word1 word2((?:\s+word\d+)+)", printed)
    assert len(texts) == 2 and all(len(text.split()) <= 8 for text in texts)
    rows, states = (np.load(tmp_path / "states" / f"{name}.npy") for name in ("head", "hidden"))
    assert rows.shape == (len(WORDS), 16) and states.shape == (example.STATES, 16)
    # The index of the first run is taken again, and the same seed writes the same text.
    example.main([*words, "--cache", str(tmp_path)])
    assert re.findall(r"word1 word2((?:\s+word\d+)+)", capsys.readouterr().out) == texts


@pytest.mark.filterwarnings("ignore")
def test_hidden_states_are_those_whose_product_with_the_rows_are_the_logits(folder):
    example = imported("examples/language_model.py")
    from transformers import AutoModelForCausalLM

    model = example.LanguageModel(folder)
    ids = model.encode("word5 word6 word7")
    text = example.Text(model, ids[:1])
    for token in ids[1:]:
        text.write(lambda _, token=token: token)  # what is drawn is known
    text.write(lambda _: 0)
    with torch.inference_mode():
        logits = AutoModelForCausalLM.from_pretrained(folder)(input_ids=torch.tensor([ids])).logits[0].numpy()
    assert np.allclose(np.array(text.states) @ model.rows.T, logits, atol=1e-4)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no folder or GGUF file"):
        imported("examples/language_model.py").LanguageModel(tmp_path / "nothing.gguf")


def test_what_a_gguf_file_needs_is_asked_for_at_the_door(tmp_path, monkeypatch):
    path = tmp_path / "some.gguf"
    path.write_bytes(b"GGUF")
    for name in ("gguf", "accelerate"):
        with monkeypatch.context() as patch:
            for other in ("gguf", "accelerate"):
                patch.setitem(sys.modules, other, ModuleType(other))
            patch.setitem(sys.modules, name, None)
            with pytest.raises(ImportError, match=r"lazygumbel\[language-models\]"):
                imported("examples/language_model.py").LanguageModel(path)


def test_the_heads_it_is_compared_with_draw_from_the_laws_they_are_judged_by(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    heads = imported("benchmarks/heads.py")
    rows, theta = make_rows(300, 16, seed=1), 6 * make_rows(1, 16, seed=2)[0]
    exact = heads.softmax(heads.logits_of(rows, theta[None])[0])
    assert np.allclose(exact, heads.softmax(rows @ theta), atol=1e-6)
    graph, partition = heads.Graph.build(rows, None), heads.Partition.build(rows, 20, None)
    contenders = [
        heads.Dense(rows, "numpy"),
        heads.Dense(rows, "torch"),
        heads.Dense(rows, "torch, race"),
        heads.Int8(rows, "numba"),
        heads.Int8(rows, "torch"),
        heads.Graph(graph, 20),
        heads.Clusters(partition, 5),
    ]
    torch.manual_seed(0)
    laws = [head.law(theta, exact) for head in contenders]
    for head, law in zip(contenders, laws, strict=True):
        assert np.isclose(law.sum(), 1)
        assert chi_square_p([head.draw(theta) for _ in range(1_000)], law) > 1e-4, head
    distances = [np.abs(law - exact).sum() / 2 for law in laws]
    assert distances[:3] == [0, 0, 0] and 0 < distances[3] < 0.02 and 0 < distances[4] < 0.02
    assert min(distances[5:]) > 0.05  # what top k and uncorrected clusters lose
    ours = heads.Ours(lg.LogLinear(lg.ExactIndex(rows)), lg.Exhaustive())
    assert ours.distances(theta[None])[0] == 0
    assert chi_square_p([ours.draw(theta) for _ in range(1_000)], exact) > 1e-4


def test_bars_are_judged_by_the_quickest_close_head(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark = imported("benchmarks/language_model.py")
    point = benchmark.Point
    points = [
        point("dense float32", "a", 30.0, 0.0, 0.0),
        point("dense int8", "a", 8.0, 0.03, 0.05),
        point("HNSW", "a", 0.5, 0.4, 0.9),
        point("lazygumbel", "close", 1.6, 1e-6, 1e-5),
        point("lazygumbel", "far", 0.1, 1e-3, 1e-2),
    ]
    assert [(found, met) for _, _, found, met in benchmark.bars(points)] == [(18.75, True), (5.0, True), (0.0, True)]
    points[2] = point("HNSW", "a", 0.5, 0.005, 0.9)
    points[1] = point("dense int8", "a", 7.9, 0.03, 0.05)
    assert [met for *_, met in benchmark.bars(points)] == [True, False, False]
