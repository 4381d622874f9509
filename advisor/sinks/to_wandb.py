"""Weights & Biases: figures, a table of findings, and the page as an artifact. WANDB_MODE=offline needs no network."""

from __future__ import annotations

from pathlib import Path

from advisor.sinks.delivery import COLUMNS, Delivery, figures, rows


def send(delivery: Delivery) -> str:
    """Makes a run of its own; a project other than `torch-advisor` by WANDB_PROJECT. Returns where it is."""
    import wandb

    environment = delivery.environment
    run = wandb.init(
        project=environment.get("WANDB_PROJECT", "torch-advisor"),
        job_type="torch-advisor",
        config={"command": delivery.name, "devices": delivery.devices},
        settings=wandb.Settings(silent=True, console="off", login_timeout=20),
    )
    try:
        table = wandb.Table(columns=list(COLUMNS), data=[list(row) for row in rows(delivery.report)])
        run.log({**figures(delivery.report), "advisor/findings_table": table})
        artifact = wandb.Artifact("torch-advisor-report", type="report")
        artifact.add_file(str(delivery.page))
        artifact.add_file(str(delivery.data))
        run.log_artifact(artifact)
        place = run.url or Path(run.dir).parent
    finally:
        run.finish()
    return f"logged to {place}"
