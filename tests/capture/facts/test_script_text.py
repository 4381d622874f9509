"""What the script's text tells by itself: numbers of a loader, where its dataset is made, a Trainer's options."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from advisor.capture.inside.facts.source.script_text import ScriptText  # noqa: E402

UNPACKED = """
CONFIG = {
    "loader": {"batch_size": 32, "num_workers": 2},
}
loader = DataLoader(dataset, **CONFIG["loader"])
"""
OPTION = """
parser.add_argument("--dataloader-num-workers", type=int, default=0)
loader = DataLoader(
    dataset,
    batch_size=8,
    num_workers=args.dataloader_num_workers,
)
"""
TWICE = """
TRAIN, TEST = {"num_workers": 2}, {"num_workers": 2}
other = {"num_workers": 2}
loader = DataLoader(dataset, **TRAIN)
"""


@pytest.mark.parametrize(
    ("source", "argument", "value", "call", "line"),
    [
        (UNPACKED, "num_workers", 2, 5, 3),
        (UNPACKED, "batch_size", 32, 5, 3),
        (UNPACKED, "num_workers", 4, 5, None),
        (OPTION, "num_workers", 0, 3, 2),
        (TWICE, "num_workers", 2, 4, None),
    ],
)
def test_numbers_are_found_where_one_place_gives_them(
    source: str, argument: str, value: int, call: int, line: int | None
) -> None:
    text = ScriptText(())
    text.__dict__["sources"] = {"train.py": source}
    found = text.number(value, argument, {"file": "train.py", "line": call, "function": ""})
    assert found.get("line") == line


@pytest.mark.parametrize(
    ("lines", "at"),
    [
        ("self.data = Rows(path)\nloader = DataLoader(self.data, 4)", 1),
        ("loader = DataLoader(\n    batch_size=4,\n    dataset=Rows(path),\n)", 3),
        ("train, test = random_split(Rows(path), (90, 10))\nloader = DataLoader(train, 4)", None),
        ("data = Rows(path)\ndata = Cached(data)\nloader = DataLoader(data, 4)", None),
        ("data = rows\nloader = DataLoader(data, 4)", None),
    ],
)
def test_the_dataset_is_named_where_one_call_makes_it(lines: str, at: int | None) -> None:
    text = ScriptText(())
    vars(text)["sources"] = {"train.py": lines}
    call = {"file": "train.py", "line": 1 + lines[: lines.index("DataLoader")].count("\n"), "function": ""}
    assert text.dataset(call).get("line") == at


@pytest.mark.parametrize(
    ("lines", "at"),
    [
        ("self.options = dict(num_workers=n)\nloader = DataLoader(data, **self.options)", 1),
        ("options = {'num_workers': n}\nloader = DataLoader(\n    data,\n    **options,\n)", 1),
        ("options = {}\noptions = {'num_workers': n}\nloader = DataLoader(data, **options)", None),
        ("options = read(path)\nloader = DataLoader(data, **options)", None),
        ("options = {'a': 1}\nloader = DataLoader(data)", None),
    ],
)
def test_what_a_loader_unpacks_is_put_together_at_one_place(lines: str, at: int | None) -> None:
    text = ScriptText(())
    text.__dict__["sources"] = {"train.py": lines}
    call = lines[: lines.index("loader =")].count("\n") + 1
    assert text.options({"file": "train.py", "line": call, "function": ""}).get("line") == at


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("from transformers import TrainingArguments\nargs = TrainingArguments(\n    'kept',\n)", 2),
        ("args = transformers.Seq2SeqTrainingArguments('kept')", 1),
        ("class OwnTrainingArguments(TrainingArguments):\n    pass\nargs = OwnTrainingArguments('kept')", 3),
        ("first = TrainingArguments('a')\nsecond = TrainingArguments('b')", None),
        ("(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()", None),
    ],
)
def test_the_options_of_a_trainer_stand_where_they_are_given(text: str, line: int | None) -> None:
    from advisor.capture.inside.facts.source.setting_lines import SettingLines

    lines = SettingLines()
    lines.text.sources = {"train.py": text}
    made = {"file": "train.py", "line": 9, "made_by": "transformers"}
    assert lines.as_optioned(made).get("line") == line
    assert lines.as_optioned({**made, "made_by": "accelerate"}) == {}


def settings(source: str) -> dict[str, Any]:
    """What a script of this text sets."""
    text = ScriptText(())
    text.__dict__["sources"] = {"train.py": source}
    return text.settings()


@pytest.mark.parametrize(
    ("text", "setting", "line"),
    [
        ("encode = np.vectorize(encode_one, otypes=[int])", "vectorize encode_one", 1),
        ("@np.vectorize\ndef encode(x):\n    return x", "vectorize encode", 2),
        ("import gc\ngc.collect()", "gc.collect", 2),
        ("ids = tokenizer(\n    texts,\n    padding='max_length',\n)", "padding", 3),
        ("batch = tokenizer.encode_plus(text, pad_to_max_length=True)", "padding", 1),
        ("class A:\n    size: int = 64\n    padding: str = field(default='max_length')", "padding", 3),
        ("p.add_argument('--padding', default='max_length')\ncollate(padding=args.padding)", "padding", 1),
        ("trainer = Trainer(max_epochs=4, val_check_interval=10)", "evaluation_every", 1),
        ("size = 0.25\ntrainer = Trainer(val_check_interval=size)", "evaluation_every", 2),
        (
            "a = TrainingArguments(\n    'kept', eval_steps=c.often,\n    eval_strategy='steps',\n)",
            "evaluation_every",
            2,
        ),
        (
            "p.add_argument('--save-steps', default=50)\na = TrainingArguments('kept', save_steps=p.n)",
            "checkpoint_every",
            1,
        ),
        ("saver = ModelCheckpoint(every_n_train_steps=n)", "checkpoint_every", 1),
        ("parser.add_argument('--eval-every', default=50)", "evaluation_every", 1),
        ("config = dict(checkpoint_interval=5)", "checkpoint_every", 1),
        ("args = TrainingArguments(\n    'kept',\n    gradient_checkpointing=True,\n)", "checkpointing", 3),
        ("trainer = Trainer(\n    max_epochs=4,\n    detect_anomaly=True,\n)", "detect_anomaly", 3),
        ("config = LlamaConfig(\n    attn_implementation='eager',\n)", "attn_implementation", 2),
        ("class A:\n    attn_implementation: str = field(default='eager')", "attn_implementation", 2),
        ("class A:\n    eval_steps: int = Field(50)\n    save: bool = Field(True)", "evaluation_every", 2),
        ("trainer = Trainer(\n    precision='bf16-mixed',\n)", "autocast", 2),
        ("trainer = Trainer(\n    precision='64-true',\n)", "double", 2),
        ("def train(\n    precision: str = '64-true',\n):\n    Trainer(precision=precision)", "double", 2),
        ("args = TrainingArguments('kept',\n    bf16=True)", "autocast", 2),
        ("with torch.autocast('cpu', dtype=torch.bfloat16):\n    loss = model(x)", "autocast", 1),
        ("args = TrainingArguments('kept',\n    skip_memory_metrics=False)", "memory_metrics", 2),
        ("trainer = Trainer(\n    reload_dataloaders_every_n_epochs=2,\n)", "reloaded_loaders", 2),
        ("class Config:\n    bucket_cap_mb: float = 0.01", "bucket_cap_mb", 2),
        ("for block in blocks:\n    fully_shard(block)\nfully_shard(model)", "fully_shard", 2),
        ("Q = FakeQuantize.with_args(\n    observer=HistogramObserver)", "histogram_observer", 2),
        ("config = GPT2Config(\n    n_embd=8,\n    vocab_size=args.vocabulary)", "vocab_size", 3),
        ("table = nn.Embedding(\n    9,\n    8,\n    max_norm=1.0)", "max_norm", 4),
        ("class Config:\n    attn: str = 'eager'\nload(attn_implementation=config.attn)", "attn_implementation", 2),
        ("class Config:\n    few: bool = False\nnn.Embedding(9, 8, sparse=config.few)", "dense_gradients", 2),
        (
            'class Config:\n    order: str = "random"\nTrainingArguments(train_sampling_strategy=config.order)',
            "random_batches",
            2,
        ),
        ("edges = load()\nmatrix = sparse.coo_matrix(edges).todense()", "to_dense", 2),
        ("DEBUG = True\nTrainer(\n    detect_anomaly=DEBUG)", "detect_anomaly", 1),
        ("p.add_argument('--amp', default='bf16')\nAccelerator(mixed_precision=args.amp)", "autocast", 1),
    ],
)
def test_settings_that_only_the_text_tells(text: str, setting: str, line: int) -> None:
    assert settings(text)[setting]["line"] == line


def test_where_a_loader_is_told_not_to_keep_its_workers() -> None:
    known = ScriptText(())
    text = "DataLoader(\n    data,\n    persistent_workers=keep,\n)\ndef make(workers=2,\n         keep=False): ..."
    known.sources = {"train.py": text}
    place = {"file": "train.py", "line": 1, "function": ""}
    assert known.switched_off("persistent_workers", place)["line"] == 6


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("SGD(\n    model.parameters(),\n    foreach=False,\n)", 3),
        ("SGD(params, foreach=args.foreach)\nclass C:\n    foreach: bool = False", 3),
        ("SGD(params, foreach=False)", None),  # in the call's first line
        ("SGD(\n    params,\n    foreach=True)", None),
        ("SGD(params, lr=0.1)", None),
    ],
)
def test_where_an_argument_is_switched_off(text: str, line: int | None) -> None:
    known = ScriptText(())
    known.sources = {"train.py": text}
    assert known.switched_off("foreach", {"file": "train.py", "line": 1, "function": ""}).get("line") == line


@pytest.mark.parametrize(
    ("text", "setting", "call", "line"),
    [
        ("p.add_argument('--threads', default=1)\nset_num_threads(args.threads)", "threads", 2, 1),
        ("cores = 1\nn = cores\ntorch.set_num_threads(n)", "threads", 3, 1),
        ("class C:\n    n: int = 1\ntorch.set_num_threads(\n    int(config.n))", "threads", 3, 2),
        (
            "p.add_argument('--dtype', default='float64')\nset_default_dtype(getattr(torch, a.dtype))",
            "default_dtype",
            2,
            1,
        ),
        ("kind = torch.float64\ntorch.set_default_dtype(kind)", "default_dtype", 2, 1),
        ("def main(debug=True):\n    set_detect_anomaly(debug)", "anomaly_detection", 2, 1),
        ("EXACT = True\nuse_deterministic_algorithms(mode=EXACT)", "deterministic", 2, 1),
        ("tune = False\ntorch.backends.cudnn.benchmark = tune", "cudnn_benchmark", 2, 1),
        ("torch.set_num_threads(1)", "threads", 1, None),  # in the call itself
        ("n = 1 if small else 2\ntorch.set_num_threads(n)", "threads", 2, None),
        ("debug = False\nset_detect_anomaly(debug)", "anomaly_detection", 2, None),  # given elsewhere: it is on
        ("n = 1\nn = 2\ntorch.set_num_threads(n)", "threads", 3, None),  # either
    ],
)
def test_where_the_value_of_a_setting_stands(text: str, setting: str, call: int, line: int | None) -> None:
    """As the default of an option, of an argument or of a field, or in an assignment, if only one place gives it."""
    known = ScriptText(())
    known.sources = {"train.py": text}
    found = known.values({setting: {"file": "train.py", "line": call, "function": ""}})
    assert found.get(f"{setting} value", {}).get("line") == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("DataLoader(\n    data,\n    num_workers=self.workers,\n)", 3),
        ("DataLoader(data, num_workers=2)", None),
        ("DataLoader(\n    data,\n)", None),
    ],
)
def test_the_line_of_an_argument_in_a_call_of_several_lines(text: str, line: int | None) -> None:
    known = ScriptText(())
    known.sources = {"train.py": text}
    assert known.passed_at("num_workers", {"file": "train.py", "line": 1, "function": ""}).get("line") == line


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("eval_every = 5\nrun(eval_every=7)", "evaluation_every"),  # two numbers
        ("DEBUG = False\nTrainer(detect_anomaly=DEBUG)", "detect_anomaly"),
        ("p.add_argument('--attn', default='sdpa')\nload(attn_implementation=args.attn)", "attn_implementation"),
        ("run(save_strategy='steps')\nrun(save_strategy='epoch')", "checkpoint_every"),  # either
        ("test_size = 5", "evaluation_every"),  # none of how often
        ("ids = tokenizer(texts, padding='longest', max_length=64)", "padding"),
        ("class Config:\n    few: bool = True\nnn.Embedding(9, 8, sparse=config.few)", "dense_gradients"),
        ("values = 3\nsave_total_limit = 2", "checkpoint_every"),
        ("trainer = Trainer(detect_anomaly=False, precision='32-true')", "detect_anomaly"),
        ("trainer = Trainer(precision='32-true')", "autocast"),
        ("a = Config(attn_implementation='sdpa')", "attn_implementation"),
        ("with autocast('cpu'):\n    f()\nwith autocast('cpu'):\n    g()", "autocast"),
        ("args = TrainingArguments('kept', skip_memory_metrics=True)", "memory_metrics"),
        ("trainer = Trainer(reload_dataloaders_every_n_epochs=0)", "reloaded_loaders"),
        ("model = DistributedDataParallel(model, bucket_cap_mb=None)", "bucket_cap_mb"),
    ],
)
def test_what_is_not_clear_is_not_told(text: str, setting: str) -> None:
    assert setting not in settings(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("weights = [1, 2]\nsampler = WeightedRandomSampler(weights, 10)", 2),
        ("a = WeightedRandomSampler(w, 10)\nb = WeightedRandomSampler(v, 10)", None),
        ("from torch.utils.data import WeightedRandomSampler", None),
    ],
)
def test_the_only_call_of_a_class(text: str, line: int | None) -> None:
    known = ScriptText(())
    known.sources = {"train.py": text}
    assert known.called("WeightedRandomSampler").get("line") == line
