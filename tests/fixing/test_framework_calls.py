"""Fixes in loops of frameworks: arguments of the framework's own class, in words, in edits and in `advisor tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.capture.record import CodePlace, Loader, Optimizer, RankRecord, RunSamples, RunTimes, Settings
from advisor.engine.framework_fixes import worded
from advisor.fixing import framework_calls
from advisor.fixing.edits import NoEditError, edit
from advisor.model import Finding, Fix, Source, Treatment, Trial
from advisor.trying.tune_result import Tuned, lines_to_change
from advisor.trying.tuning import Point

BF16 = Treatment("autocast", {"dtype": "bfloat16"})
FP16 = Treatment("autocast", {"dtype": "float16"})
WORKERS = Treatment("loader", {"num_workers": 4, "persistent_workers": True})
FUSED = Treatment("optimizer", {"fused": True})
BUCKETS = Treatment("ddp", {"bucket_cap_mb": 100, "gradient_as_bucket_view": True})
SEARCH = Treatment("ddp", {"find_unused_parameters": False})
ANOMALY = Treatment("calls", {"names": ["torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly"]})

HUGGING = "from transformers import Trainer, TrainingArguments\n"
LIGHTNING = "import lightning as L\nfrom lightning.pytorch.strategies import DDPStrategy\n"
ACCELERATE = "from accelerate import Accelerator\n"


def record(framework: str | None, **more: Any) -> RankRecord:
    """A rank whose loop that framework runs."""
    places = {name: CodePlace("train.py", 9, "main", by) for name, by in more.pop("set_at", {}).items()}
    return RankRecord(settings=Settings(framework=framework, set_at=places), **more)


def fix(treatment: Treatment | None, title: str = "Set `num_workers=4`") -> Finding:
    return Finding("", fix=Fix(title, "exact", "DataLoader(dataset)", "DataLoader(dataset, num_workers=4)", treatment))


@pytest.mark.parametrize(
    ("loaders", "treatment", "said"),
    [
        ([Loader(made_in="skorch")], WORKERS, "; `skorch` makes the DataLoader"),
        ([Loader(made_in="skorch")], None, "; `skorch` makes the DataLoader"),
        ([Loader()], WORKERS, ""),
        ([Loader(made_in="skorch"), Loader()], WORKERS, ""),
        ([Loader(made_in="skorch", made_by="transformers")], None, "; `skorch` makes the DataLoader"),
        ([Loader(made_in="transformers", made_by="transformers")], None, ""),
        ([Loader(made_in="accelerate", made_by="accelerate")], WORKERS, ""),
        ([Loader(made_in="skorch")], FUSED, ""),
        ([Loader(made_in="skorch")], BUCKETS, ""),
    ],
)
def test_a_package_that_makes_the_loader_is_named(
    loaders: list[Loader], treatment: Treatment | None, said: str
) -> None:
    (found,) = worded((fix(treatment),), RankRecord(loaders=loaders, optimizers=[Optimizer("AdamW")]))
    assert found.fix is not None
    assert found.fix.title.partition(":")[0] == f"Set `num_workers=4`{said}"


@pytest.mark.parametrize(
    ("where", "package", "known"),
    [
        ((35,), "deepctr_torch", True),
        ((35, 40), "deepctr_torch", False),  # the script has lines of its own in the step
        ((), "deepctr_torch", False),
        ((35,), "torch", False),
        ((35,), "", False),
    ],
)
def test_a_package_that_has_the_code_is_named(where: tuple[int, ...], package: str, known: bool) -> None:
    """A script with one line for the training loop: what its ops do is in the package that runs it."""
    at = {line: Source("train.py", line, "<module>") for line in (35, 40)}
    found = Finding("", where=tuple(at[line] for line in where), fix=Fix("Merge the tables", "numerics", "old", "new"))
    sampled = [RunSamples(kind="step", file="train.py", line=35, package=package, hits=9)]
    run = RankRecord(run=RunTimes(samples=sampled))
    (named,) = worded((found,), run, frozenset({at[35]}))
    assert named.fix is not None
    assert (f"; this is code of `{package}`" in named.fix.title) is known
    (plain,) = worded((found,), run)
    assert plain == found


@pytest.mark.parametrize(
    ("framework", "before", "treatment", "after"),
    [
        ("transformers", "TrainingArguments('out')", WORKERS,
         "TrainingArguments('out', dataloader_num_workers=4, dataloader_persistent_workers=True)"),
        ("transformers", "TrainingArguments('out', fp16=True)", BF16, "TrainingArguments('out', bf16=True)"),
        ("transformers", 'TrainingArguments(optim="adamw_torch")', FUSED,
         "TrainingArguments(optim='adamw_torch_fused')"),
        ("transformers", "TrainingArguments(ddp_find_unused_parameters=True)", SEARCH,
         "TrainingArguments(ddp_find_unused_parameters=False)"),
        ("transformers", "TrainingArguments()", BUCKETS, "TrainingArguments(ddp_bucket_cap_mb=100)"),
        ("transformers", "TrainingArguments()", Treatment("compile"), "TrainingArguments(torch_compile=True)"),
        ("lightning", "L.Trainer(precision=32)", BF16, "L.Trainer(precision='bf16-mixed')"),
        ("lightning", "L.Trainer(max_epochs=2)", FP16, "L.Trainer(max_epochs=2, precision='16-mixed')"),
        ("lightning", "L.Trainer(detect_anomaly=True)", ANOMALY, "L.Trainer(detect_anomaly=False)"),
        ("lightning", "L.Trainer(strategy=DDPStrategy())", SEARCH,
         "L.Trainer(strategy=DDPStrategy(find_unused_parameters=False))"),
        ("accelerate", "Accelerator()", BF16, "Accelerator(mixed_precision='bf16')"),
    ],
)  # fmt: skip
def test_the_frameworks_own_call_is_edited(framework: str, before: str, treatment: Treatment, after: str) -> None:
    imports = {"transformers": HUGGING, "lightning": LIGHTNING, "accelerate": ACCELERATE}[framework]
    own = framework_calls.of(framework, treatment)
    assert own is not None
    assert edit(f"{imports}x = {before}\n", (), own.edit) == f"{imports}x = {after}\n"


@pytest.mark.parametrize(
    ("framework", "source", "treatment", "said"),
    [
        ("transformers", HUGGING + "TrainingArguments(bf16=options.bf16)", BF16, "`bf16` is `options.bf16`"),
        ("transformers", HUGGING + "TrainingArguments(**options)", BF16, "takes its arguments from a dictionary"),
        (
            "transformers",
            HUGGING + 'TrainingArguments(optim="sgd")',
            FUSED,
            "`optim` is 'sgd', which is another choice",
        ),
        (
            "transformers",
            "from mine import TrainingArguments\nTrainingArguments()",
            BF16,
            "is not that of transformers",
        ),
        ("transformers", HUGGING + "parser.parse_args_into_dataclasses()", BF16, "0 calls of TrainingArguments"),
        ("lightning", HUGGING + "Trainer(model)", BF16, "transformers.Trainer is not that of lightning"),
        ("lightning", LIGHTNING + "L.Trainer()", ANOMALY, "Trainer() is not given `detect_anomaly`"),
    ],
)
def test_what_cannot_be_written_says_why(framework: str, source: str, treatment: Treatment, said: str) -> None:
    own = framework_calls.of(framework, treatment)
    assert own is not None
    with pytest.raises(NoEditError) as failure:
        edit(source, (), own.edit)
    assert said in str(failure.value)


@pytest.mark.parametrize(
    ("of", "treatment", "after"),
    [
        (record("transformers", loaders=[Loader(made_by="transformers")]), WORKERS,
         "TrainingArguments(..., dataloader_num_workers=4, dataloader_persistent_workers=True)"),
        (record("transformers", optimizers=[Optimizer("AdamW", made_by="transformers")]), FUSED,
         'TrainingArguments(..., optim="adamw_torch_fused")'),
        (record("transformers", loaders=[Loader(made_by="transformers")]), None,
         "TrainingArguments(..., dataloader_num_workers=4)"),
        (record("transformers", set_at={"ddp": "transformers"}), BUCKETS,
         "TrainingArguments(..., ddp_bucket_cap_mb=100)"),
        (record("lightning", set_at={"ddp": "lightning"}), SEARCH,
         "Trainer(..., strategy=DDPStrategy(..., find_unused_parameters=False))"),
        (record("lightning", set_at={"anomaly_detection": "lightning"}), ANOMALY, "Trainer(..., detect_anomaly=False)"),
        (record("lightning"), BF16, 'Trainer(..., precision="bf16-mixed")'),
    ],
)  # fmt: skip
def test_words_of_the_framework_that_runs_the_loop(of: RankRecord, treatment: Treatment | None, after: str) -> None:
    (found,) = worded((fix(treatment),), of)
    assert found.fix is not None
    assert found.fix.after == after
    assert (found.fix.edit is not None) == (treatment is not None)


@pytest.mark.parametrize(
    ("of", "treatment"),
    [
        (None, BF16),
        (record(None), BF16),
        (record("lightning", loaders=[Loader()]), WORKERS),
        (record("transformers", loaders=[Loader(made_by="transformers"), Loader()]), WORKERS),
        (record("transformers", optimizers=[Optimizer("AdamW")]), FUSED),
        (record("transformers", optimizers=[Optimizer("Adafactor", made_by="transformers")]), FUSED),
        (record("accelerate", set_at={"ddp": None}), SEARCH),
        (record("lightning", set_at={"deterministic": None}), ANOMALY),
    ],
)
def test_what_the_script_makes_itself_stays_as_it_is(of: RankRecord | None, treatment: Treatment) -> None:
    assert worded((fix(treatment),), of) == (fix(treatment),)


def test_a_title_names_the_frameworks_argument() -> None:
    (found,) = worded((fix(WORKERS),), record("transformers", loaders=[Loader(made_by="transformers")]))
    assert found.fix is not None
    assert found.fix.title == "Set `dataloader_num_workers=4`"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (
            HUGGING + "TrainingArguments('out')\n",
            HUGGING + "TrainingArguments('out', per_device_train_batch_size=32)\n",
        ),
        (LIGHTNING + "DataLoader(data, 8)\nL.Trainer()\n", LIGHTNING + "DataLoader(data, 32)\nL.Trainer()\n"),
    ],
)
def test_the_tuner_shows_the_framework_s_lines(tmp_path: Path, text: str, after: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    reached = ("DataLoader: batch size 32 instead of 8",)
    trial = Trial("batch x 4", "faster", treatments=(Treatment("batch", {"scale": 4}),))
    tuned = Tuned(Point({"batch": "4"}, -0.5, reached=reached), trial, (), (), {}, 1.0)
    diff, left = lines_to_change(tuned, script)
    assert not left
    (line,) = set(after.splitlines()) - set(text.splitlines())
    assert f"+{line}\n" in diff
