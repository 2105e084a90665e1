"""Which variables are secret, and that no value of one is stored, shown or taken as an axis."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from dtsweep import Resources, Sweep, SweepError
from dtsweep.metrics.rows import point_row
from dtsweep.plan.plan import outdated
from dtsweep.results.schema import TRIALS
from dtsweep.sweep.point import Point
from dtsweep.sweep.secret import hidden, hidden_json, is_secret
from tests.outcomes import Tokens

SECRET = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "WANDB_API_KEY", "DB_PASSWORD"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "PGPASSWORD", "OPENAI_APIKEY", "client_secret", "apiKey", "SSH_PRIVATEKEY"),
)
OPEN = (
    *("TOKENIZERS_PARALLELISM", "MONKEY_COUNT", "NCCL_IB_PKEY", "NCCL_ALGO", "MAX_TOKENS", "KEYBOARD", "HOTKEY"),
    *("SECRETARY", "PASSES", "OMP_NUM_THREADS", "CREDENTIALED"),
)


@pytest.mark.parametrize("name", SECRET)
def test_a_name_that_speaks_of_a_secret_is_one_and_no_axis(name: str) -> None:
    assert is_secret(name)
    with pytest.raises(SweepError, match=f"axis 'env.{name}' speaks of a secret.*Resources") as caught:
        Sweep(workload=Tokens(), axes={f"env.{name}": ["hunter2"]})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", OPEN)
def test_a_name_that_has_such_letters_by_accident_is_none(name: str) -> None:
    assert not is_secret(name)
    Sweep(workload=Tokens(), axes={f"env.{name}": ["1"]})


def test_a_password_in_a_url_is_hidden_whatever_the_variable_is_called() -> None:
    shown = hidden({"HTTPS_PROXY": "http://me:hunter2@proxy:3128", "NO_PROXY": "http://proxy:3128/a@b"})
    assert re.fullmatch("hidden:[0-9a-f]{4}", shown["HTTPS_PROXY"])
    assert shown["NO_PROXY"] == "http://proxy:3128/a@b"


def test_hidden_values_are_told_apart_and_hide_to_themselves() -> None:
    one, other = (hidden({"HF_TOKEN": value}) for value in ("hf_one", "hf_other"))
    assert one != other
    assert hidden(one) == one == hidden({"HF_TOKEN": "hf_one"})
    # Equal secrets under two names don't show that they are equal.
    assert one["HF_TOKEN"] != hidden({"DB_PASSWORD": "hf_one"})["DB_PASSWORD"]


def swept(token: str) -> Sweep:
    environment = {"HF_TOKEN": token, "NCCL_ALGO": "Ring"}
    return Sweep(workload=Tokens(), axes={}, resources=Resources(environment=environment, gpus_per_worker=0))


def test_a_row_has_the_hash_and_another_value_refuses_to_mix_without_showing_either() -> None:
    point = Point(workload=Tokens())
    row: dict[str, Any] = {column.name: None for column in TRIALS} | point_row(swept("hf_one"), point)
    assert "hf_" not in json.dumps(row)
    assert json.loads(row["environment"])["NCCL_ALGO"] == "Ring"
    row |= {"status": "ok", "trial_id": "a"}
    assert outdated(swept("hf_one"), [row]) == {}
    # A version before this one stored the value itself.
    older = row | {"environment": json.dumps(dict(swept("hf_one").resources.environment), sort_keys=True)}
    assert outdated(swept("hf_one"), [older]) == {}
    assert hidden_json(older["environment"]) == row["environment"]
    for stored in (row, older):
        with pytest.raises(SweepError, match="these results have environment") as caught:
            outdated(swept("hf_other"), [stored])
        assert "hf_o" not in str(caught.value)


def test_what_is_no_environment_is_refused_without_what_it_says() -> None:
    for given in ({"HF_TOKEN": 4711}, "HF_TOKEN=4711", [("HF_TOKEN", "4711")]):
        with pytest.raises(SweepError, match=r"environment") as caught:
            replace(Resources(), environment=given)  # type: ignore[arg-type]
        assert "4711" not in str(caught.value)
