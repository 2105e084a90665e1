"""Which variables are secret, and that no value of one is stored, shown or taken as an axis."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from dtsweep import Resources, StorageError, Sweep, SweepError
from dtsweep.errors import error_line, quoted
from dtsweep.metrics.rows import point_row
from dtsweep.plan.plan import outdated
from dtsweep.results.schema import TRIALS
from dtsweep.secret import (
    LEFT_OUT,
    hidden,
    is_looked_for,
    is_secret,
    shared_trials,
    without_credentials,
    without_homes,
    without_secrets,
)
from dtsweep.session.session_settings import Code, Settings
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.point import Point
from tests.frames import trials
from tests.outcomes import Tokens

SETTINGS: dict[str, Any] = {
    "code": Code(pickled=b"", folder=None),
    "cpus_per_worker": 1,
    "gpus_per_worker": 0,
    "node_timeout_s": 1.0,
    "storage": "",
    "is_private": True,
}


@dataclass(frozen=True)
class Loader(Tokens):
    """Has an address among its fields."""

    source: str = ""
    sources: tuple[str, ...] = ()


SECRET = """
    AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN HF_TOKEN WANDB_API_KEY DB_PASSWORD
    GOOGLE_APPLICATION_CREDENTIALS PGPASSWORD OPENAI_APIKEY client_secret apiKey SSH_PRIVATEKEY
    APIKEY OPENAIAPIKEY SECRETKEY AWS_ACCESSKEYID PASSWD DB_PASS MYSQL_PWD REDIS_AUTH
    RAY_AUTH_TOKEN TOKEN KEY HTTP_AUTHORIZATION SESSION_COOKIE MAX_API_KEY SSL_KEYPASSPHRASE
    HF_TOKENS API_TOKENS SSHKEY SIGNINGKEY SSHPASS DB_CREDS AZURE_STORAGE_CONNECTION_STRING
    connectionString STRING_CONNECTION TOKENIZER_API_KEY PROXY_AUTHORISATION SERVICE_JWT DBPWD
    OldPwd standbyPassword TELECOMPASSWORD derbyPassword DBPASSINIT
"""
HIDDEN_BY_ACCIDENT = """
    MONKEY_COUNT KEYBOARD HOTKEY SECRETARY CREDENTIALED KEYCLOAK_URL SSH_AUTH_SOCK HF_MAX_TOKENS
    API_PAD_TOKEN MY_PWD VIDEOS_TOKEN
"""
"""Names with a part such as KEY: a value is hidden once too often rather than shown once."""

OPEN = """
    TOKENIZERS_PARALLELISM tokenizer NCCL_IB_PKEY NCCL_ALGO MAX_TOKENS PASSES OMP_NUM_THREADS
    RAY_AUTH_MODE PWD OLDPWD PAD_TOKEN EOS_TOKEN_ID TOKEN_COUNT MAX_KEYS key_length PASS_COUNT
    AUTHORS XAUTHORITY CUDA_DEVICE_MAX_CONNECTIONS RUN_CUSTOM_TOKENIZERS BYPASS bypass_cache
    NCCL_BYPASS compass passenger_count
"""
URLS_WITH_CREDENTIALS = {
    "http://me:hunter2@proxy:3128": "http://proxy:3128",
    "https://hunter2@github.com/a/b": "https://github.com/a/b",
    "redis://:hunter2@host": "redis://host",
    "s3://K:hun/ter2@b/r": "s3://b/r",
    "postgres://u:p/hunter2@host/db": "postgres://host/db",
    "postgres://me@corp.com:hunter2@host/db": "postgres://host/db",
    "https://me@corp.com:hunter2@nexus/x": "https://nexus/x",
    "https://hunter2:@api.org": "https://api.org",
    "http://u:hun@ter2@host/x": "http://host/x",
    "https://a.org/?sig=h2": "https://a.org/?",
    "https://a.org/?user=me&pwd=h2": "https://a.org/?user=me&",
    "gs://b/o?X-Goog-Signature=hunter2": "gs://b/o?",
    "abfs://c:hunter2@account/x": "abfs://account/x",
    "http://1:2hunter@[::1]:3128/x": "http://[::1]:3128/x",
}
"""With what is left of each."""

OPEN_VALUES = [
    "http://proxy:3128/a@b",
    "http://[::1]:3128/a@b",
    "ssh://git@github.com/a",
    "git@github.com:a/b",
    "s3://bucket/a@b",
    "abfs://container@account.dfs.core.windows.net/x",
    "cifar10:train@v2",
    "https://a.org/?design=x&region=us-1",
]


@contextmanager
def refused(match: str, *, without: str = "hunter2") -> Iterator[None]:
    """What is done is refused in words that do not say this."""
    with pytest.raises(SweepError, match=match) as caught:
        yield
    assert without not in str(caught.value)


@pytest.mark.parametrize("name", [*SECRET.split(), *HIDDEN_BY_ACCIDENT.split()])
def test_a_name_that_speaks_of_a_secret_is_one_and_no_axis(name: str) -> None:
    assert is_secret(name)
    with refused(f"the name of axis 'env.{name}' marks a secret, .*Resources"):
        Sweep(workload=Tokens(), axes={f"env.{name}": ["hunter2"]})


@pytest.mark.parametrize("name", OPEN.split())
def test_a_name_that_is_not_secret_may_be_an_axis(name: str) -> None:
    assert not is_secret(name)
    Sweep(workload=Tokens(), axes={f"env.{name}": ["1"]})


def test_a_password_in_a_url_is_hidden_whatever_the_variable_is_called() -> None:
    given = {"HTTPS_PROXY": "http://me:hunter2@proxy:3128", "NO_PROXY": "http://proxy:3128/a@b"}
    shown = hidden(given)
    assert re.fullmatch("hidden:[0-9a-f]{4}", shown["HTTPS_PROXY"])
    assert shown["NO_PROXY"] == given["NO_PROXY"]


@pytest.mark.parametrize("url", URLS_WITH_CREDENTIALS)
def test_a_url_with_credentials_is_hidden_no_axis_and_no_field_of_a_workload(url: str) -> None:
    assert is_secret("SERVICE", url)
    environment = {"SERVICE": url}
    for shown in (
        Settings(**SETTINGS, environment=environment),
        Resources(environment=environment),
    ):
        assert "hunter2" not in repr(shown)
    for axes in (
        {"env.SERVICE": ["http://open", url]},
        {"env.SERVICE": url},
        {"workload.source": [url]},
        {"env.SERVICE": lambda _: url},
    ):
        with refused(r"axis '(env|workload)\."):
            candidates(Sweep(workload=Loader(), axes=axes))
    for given in (Loader(source=url), Loader(sources=("http://open", url))):
        with refused(r"field 'sources?' of workload Loader has a URL with a password"):
            Sweep(workload=given, axes={})
    left = URLS_WITH_CREDENTIALS[url]
    assert without_credentials(url) == left
    for error in (SweepError, StorageError):
        assert str(error(f"no {url}")) == f"no {left}"
    assert error_line(OSError(f"no {url}")) == f"OSError: no {left}"
    assert quoted(url) == repr(left)


@pytest.mark.parametrize("value", OPEN_VALUES)
def test_an_address_without_credentials_stays_as_it_is(value: str) -> None:
    assert not is_secret("SERVICE", value)
    assert without_credentials(value) == value
    axes = {"env.SERVICE": [value], "workload.source": [value]}
    candidates(Sweep(workload=Loader(source=value), axes=axes))


def test_a_proxy_has_a_password_without_a_scheme_too() -> None:
    assert is_secret("HTTPS_PROXY", "me:hunter2@proxy:3128")
    assert not is_secret("https_proxy", "proxy:3128")
    assert not is_secret("IMAGE", "python:3.11@sha256")


def test_a_message_cut_short_has_no_part_of_a_password() -> None:
    assert "hunter2" not in quoted("http://me:" + "hunter2" * 20 + "@proxy")


def test_hidden_values_are_told_apart_and_hide_to_themselves() -> None:
    one, other = (hidden({"HF_TOKEN": value}) for value in ("hf_one", "hf_other"))
    assert one != other
    assert hidden(one) == one == hidden({"HF_TOKEN": "hf_one"})
    # Equal secrets under two names don't show that they are equal.
    assert one["HF_TOKEN"] != hidden({"DB_PASSWORD": "hf_one"})["DB_PASSWORD"]


def swept(token: str) -> Sweep:
    environment = {"HF_TOKEN": token, "NCCL_ALGO": "Ring"}
    resources = Resources(environment=environment, gpus_per_worker=0)
    return Sweep(workload=Tokens(), axes={}, resources=resources)


def test_a_row_has_the_hash_and_another_value_refuses_to_mix_without_showing_either() -> None:
    point = Point(workload=Tokens())
    row = {column.name: None for column in TRIALS} | point_row(swept("hf_one"), point)
    assert "hf_" not in json.dumps(row)
    assert json.loads(row["environment"])["NCCL_ALGO"] == "Ring"
    row |= {"status": "ok", "trial_id": "a"}
    assert outdated(swept("hf_one"), [row]) == {}
    with refused("these results were measured with environment", without="hf_o"):
        outdated(swept("hf_other"), [row])


def test_what_is_no_environment_is_refused_without_what_it_says() -> None:
    for given in ({"HF_TOKEN": 4711}, "HF_TOKEN=4711", [("HF_TOKEN", "4711")]):
        with refused("environment", without="4711"):
            replace(Resources(), environment=given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Hub(Tokens):
    """Has a key among its fields."""

    api_key: str = ""
    key_length: int = 8


def test_a_field_of_a_workload_that_speaks_of_a_secret_is_refused_with_a_value() -> None:
    Sweep(workload=Hub(), axes={"workload.key_length": [8, 9]})
    with refused("the name of field 'api_key' of workload Hub marks a secret"):
        Sweep(workload=Hub(api_key="hunter2"), axes={})
    with refused(r"the name of axis 'workload\.api_key' marks a secret"):
        candidates(Sweep(workload=Hub(), axes={"workload.api_key": ["hunter2"]}))


def test_a_secret_of_this_process_is_found_as_it_is_in_a_url_and_in_quotes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "a b/c'd\\e")
    for text in ("a b/c'd\\e", "q=a%20b%2Fc%27d%5Ce", repr("a b/c'd\\e")):
        shown = without_secrets(f"401 for {text}")
        assert re.search("hidden:[0-9a-f]{4}", shown), shown
        assert "b" not in shown.removeprefix("401 for ").partition("hidden:")[0]


def test_short_and_ordinary_values_do_not_fill_texts_with_words_for_secrets() -> None:
    harmless = {
        **{"KEY": "1", "TOKEN": "true", "AUTH_MODE": "disabled", "SSL_KEY_FILE": "/etc/passwd"},
        **{"HOME": "/home/marie", "OMP_NUM_THREADS": "12345678"},
    }
    assert not any(is_looked_for(name, value) for name, value in harmless.items())
    text = " ".join(harmless.values())
    assert without_secrets(text, harmless) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("git_token = abc", "git_token = [secret]"),
        ('{"HF_TOKEN": "abc", "A": "b"}', '{"HF_TOKEN": "[secret]", "A": "b"}'),
        ('{"HF_TOKEN": "hidden:03f9"}', '{"HF_TOKEN": "hidden:03f9"}'),
        ("train.py --api-key abc --lr 1", "train.py --api-key [secret] --lr 1"),
        ("Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer [secret]"),
        ('password="correct horse battery" next', 'password="[secret]" next'),
        ("--api-key 'ab cd' --lr 1", "--api-key [secret] --lr 1"),
        ("""--password 'it'"'"'s so' next""", "--password [secret] next"),
        ('--password "abc"def "x', '--password [secret] "x'),
        ('--password "not closed\nnext', "--password [secret]\nnext"),
        (r"--password a\ b next", "--password [secret] next"),
        ("hf_token: abc, X-Vault-Token: abc", "hf_token: [secret], X-Vault-Token: [secret]"),
        ("ssh_key: abc, account-key: abc", "ssh_key: [secret], account-key: [secret]"),
        ('--password "a\\"b c" next', "--password [secret] next"),
        ("db.password: abc, clientSecret: abc", "db.password: [secret], clientSecret: [secret]"),
        ("aws_secret_access_key: abcdefgh", "aws_secret_access_key: [secret]"),
        ("X-Api-Key: abc\nHF_TOKEN: abc", "X-Api-Key: [secret]\nHF_TOKEN: [secret]"),
        ("password='it\\'s long', a", "password='[secret]', a"),
        ('password="cut off', 'password="[secret]'),
        ("password=ab,cd", "password=[secret]"),
        ("password=ab, cd", "password=[secret], cd"),
        ("HF_TOKEN=ab,B=1", "HF_TOKEN=[secret],B=1"),
        ("env=HF_TOKEN=abc", "env=HF_TOKEN=[secret]"),
        ("train.py --hf-token=abc", "train.py --hf-token=[secret]"),
        (f"wandb API key: {'0123456789' * 4}", "wandb API key: [secret]"),
    ],
)
def test_a_word_stands_in_the_place_of_a_secret(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        # Source lines of a traceback.
        "    key = self.project_keys(x)",
        "    next_token = logits[0].argmax()",
        "attention(query=self.q(x), key=self.k(x))",
        "max_tokens=512, tokens per second: 4711",
        "KeyError: 'weight', key: x",
        "compass=north bypass=on",
        "KeyError: missing_key: layers.0",
        "sort_key: time, next_token: hello, attn_key: bf16",
        f"commit {'0123456789' * 4}",
        "tokens=1,2,3",
        "max_tokens=512, tokens_per_s: 1234.5, passes=2",
        "package nvidia-curand-cu12 10.3.5.147",
        "torch==2.7.1.0",
        "gloo listens on 127.0.0.1 and 0.0.0.0",
        "at 12:30:45 UTC, std::vector, a::b",
        "https://docs.example/users/guide",
        "OutOfMemoryError: 2 GiB on a GPU",
        "989554ca7efbfe15 428415b03a0147f3a226299a74e34807",
        'Point(sync="ddp", workers=2, micro_batch=8)',
        "logs/20261126T161202-w2-549191/0.log",
        "dtsweep/workloads/decoder.py changed",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == without_homes(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no /home/ann/a/net.py:12", "no ~/a/net.py:12"),
        ("at /mnt/nfs/home/ann/x, ok", "at ~/x, ok"),
        ("file:///home/ann/x", "file://~/x"),
        (r"C:\Users\ann\net.py", r"~\net.py"),
        (r'{"path": "C:\\Users\\ann\\net.py"}', r'{"path": "~\\net.py"}'),
        ("/root/x and /rooted/y", "~/x and /rooted/y"),
        ("~ann/x", "~/x"),
        ("url?p=%2Fhome%2Fann%2Fx", "url?p=~%2Fx"),
    ],
)
def test_a_tilde_stands_in_the_place_of_a_home_folder(text: str, shown: str) -> None:
    assert without_homes(text) == shown


TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"


def test_a_setting_that_holds_a_token_is_refused() -> None:
    for given in ({"workload": Loader(source=TOKEN)}, {"axes": {"workload.source": [TOKEN]}}):
        with refused("a token", without=TOKEN):
            candidates(Sweep(**{"workload": Loader(), "axes": {}} | given))  # type: ignore[arg-type]
    assert "hf_" not in hidden({"SERVICE": TOKEN})["SERVICE"]


def test_trials_are_shared_without_texts_that_may_name_a_host() -> None:
    private = dict.fromkeys(("reason", "log", "command", "gradients_reason"), "on node-7")
    rows = trials(private | {"straggler": "rank 3 on node-7"}, {"straggler": None})
    shared = shared_trials(rows)
    assert shared["straggler"].tolist()[0] == "rank 3"
    assert "node-7" not in shared.to_csv()
    assert list(shared.columns) == list(rows.columns)


def test_reasons_of_dtsweep_and_of_skip_are_shared() -> None:
    statuses = ["skipped", "budget", "cancelled", "rank_died"]
    rows = trials(*({"status": status, "reason": "so it is"} for status in statuses))
    assert shared_trials(rows)["reason"].tolist() == [*["so it is"] * 3, LEFT_OUT]


def assert_in_proportion(work: Callable[[int], object]) -> None:
    """A time that grows with the square of the length is 16 times as long for four times it."""
    took_s = []
    for length in (5_000, 20_000):
        began = time.process_time()
        work(length)
        took_s.append(time.process_time() - began)
    assert took_s[1] < 10 * took_s[0] + 0.5


@pytest.mark.parametrize(
    "part",
    ["a-", "a_", "a.", "--a", "--key '", '--key "\\"', "a=", "-", "a='", 'password="', "key "],
)
def test_a_long_text_takes_a_time_in_proportion_to_its_length(part: str) -> None:
    assert_in_proportion(lambda length: without_secrets(part * length))
    assert_in_proportion(lambda length: without_secrets('--key "' + part * length))


def test_an_address_that_never_ends_takes_a_time_in_proportion_to_its_length() -> None:
    for part in ("//:x", "//a:b", "//a:b c@", "a plain text @"):
        assert without_credentials(part * 20_000) == part * 20_000
        assert_in_proportion(lambda length, part=part: without_credentials(part * length))  # type: ignore[misc]
