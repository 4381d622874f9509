"""MLflow: metrics, a table of findings, and the page as an artifact. MLFLOW_TRACKING_URI says where to."""

from __future__ import annotations

from advisor.sinks.delivery import COLUMNS, Delivery, figures, rows


def send(delivery: Delivery) -> str:
    """Makes a run of its own in the experiment of MLFLOW_EXPERIMENT_NAME (`torch-advisor`). Returns where it is."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=delivery.environment.get("MLFLOW_TRACKING_URI"))
    name = delivery.environment.get("MLFLOW_EXPERIMENT_NAME", "torch-advisor")
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known else client.create_experiment(name)
    run = client.create_run(experiment, run_name=delivery.name)
    run_id = run.info.run_id
    try:
        for key, value in figures(delivery.report).items():
            client.log_metric(run_id, key, value)
        client.log_param(run_id, "command", delivery.name[:500])
        client.log_param(run_id, "devices", ", ".join(delivery.devices)[:500])
        columns = list(zip(*rows(delivery.report), strict=True)) or [()] * len(COLUMNS)
        table = {name: list(values) for name, values in zip(COLUMNS, columns, strict=True)}
        client.log_dict(run_id, table, "findings.json")
        client.log_artifact(run_id, str(delivery.page))
        client.log_artifact(run_id, str(delivery.data))
    except BaseException:
        client.set_terminated(run_id, status="FAILED")
        raise
    client.set_terminated(run_id)
    return f"logged as run {run_id} of experiment '{name}'"
