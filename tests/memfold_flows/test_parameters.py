"""What the run form of a flow asks: the same thresholds as the command line, each with its meaning and its bounds."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from memfold_flows.flags import THRESHOLDS
from memfold_flows.parameters import Approval, Runner, Thresholds, Timing

MODELS = (Thresholds, Timing, Approval, Runner)


def test_a_flow_knows_every_threshold_of_the_command_line() -> None:
    """`memfold backfill` hands its flags to the flow, so one that is missing there could not be given."""
    assert set(Thresholds.model_fields) == set(THRESHOLDS)


@pytest.mark.parametrize("model", MODELS)
def test_every_field_of_the_form_says_what_it_is_for(model: type[BaseModel]) -> None:
    """Prefect shows the description beside the field."""
    assert [name for name, field in model.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (Thresholds, {"max_loss_fraction": 1.1}),
        (Thresholds, {"max_memories": 0}),
        (Thresholds, {"newborn_grace_days": -1}),
        (Thresholds, {"on_excess": "ignore"}),
        (Thresholds, {"max_loss": 0.2}),
        (Approval, {"when": "sometimes"}),
        (Approval, {"wait_hours": 0}),
        (Timing, {"consolidate_interval_hours": 0}),
        (Runner, {"workers": 0}),
    ],
)
def test_a_value_out_of_its_bounds_is_refused_by_the_form(model: type[BaseModel], value: dict[str, Any]) -> None:
    """Before a run is made, not by the run."""
    with pytest.raises(ValidationError):
        model(**value)


def test_only_what_was_given_is_passed_on() -> None:
    """What is left out comes from the worker's environment or memfold.yaml."""
    assert Thresholds(max_memories=200).given() == {"max_memories": 200}
