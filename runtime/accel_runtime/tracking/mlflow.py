"""MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accel_runtime.errors import ConfigError
from accel_runtime.tracking import GeneralTracker, flat, plain


class MLflowTracker(GeneralTracker):
    name = "mlflow"

    def __init__(self, run_name: str, **kwargs: Any) -> None:
        try:
            import mlflow
        except ImportError:
            raise ConfigError("log_with='mlflow' needs the package mlflow; pip install mlflow") from None
        self.client = mlflow
        mlflow.set_experiment(run_name)
        self.run = mlflow.start_run(**kwargs)

    @property
    def tracker(self) -> Any:
        return self.run

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        self.client.log_params(flat(values))

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        numbers = {key: plain(value) for key, value in flat(values).items()}
        self.client.log_metrics({key: value for key, value in numbers.items() if _is_number(value)}, step=step)

    def state(self) -> dict[str, Any]:
        return {"id": self.run.info.run_id}

    def resume(self, state: dict[str, Any]) -> None:
        if state["id"] != self.run.info.run_id:
            self.client.end_run()
            self.run = self.client.start_run(run_id=state["id"])

    def finish(self) -> None:
        self.client.end_run()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))
