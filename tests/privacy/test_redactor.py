"""Texts that leave the machine name no secret, no home folder, no user and no host."""

from __future__ import annotations

import getpass
import json
import string
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dtsweep.privacy import Redactor, redactor_for, redactor_of
from dtsweep.results.store import Results
from dtsweep.sweep.secret import without_secrets
from tests.hostile import (
    GIVEN_AWAY,
    JSON_COLUMNS,
    NODE,
    PRIVATE,
    private_ranks,
    private_trials,
    store_hostile,
)


def leaks(text: str) -> list[str]:
    return [part for part in GIVEN_AWAY if part in text]


def test_the_example_has_all_that_gives_somebody_away() -> None:
    assert leaks(PRIVATE) == [*GIVEN_AWAY]
    assert leaks(Redactor().text(PRIVATE)) == ["node-7", "corp.example"]
    assert leaks(Redactor([NODE]).text(PRIVATE)) == []


def test_rows_whose_every_text_column_gives_somebody_away_give_nothing_away() -> None:
    ranks = private_ranks()
    redactor = redactor_of(ranks)
    for frame in (private_trials(), ranks):
        for name in frame:
            for value in frame[name].dropna():
                assert leaks(json.dumps(redactor.values(value), default=str)) == [], name
                if name in JSON_COLUMNS:
                    json.loads(redactor.text(value))


def test_the_redactor_of_stored_results_knows_nodes_drivers_and_users(tmp_path: Path) -> None:
    store_hostile(tmp_path, {"private": f"/home/annlee/x on {NODE}"})
    redactor = redactor_for(Results(tmp_path))
    # Neither text has a home folder.
    assert redactor.text("by annlee") == "by [user]"
    assert redactor_for(Results(tmp_path), with_hosts=True).text("by annlee") == "by annlee"


def test_with_hosts_names_stay_and_secrets_and_home_folders_do_not() -> None:
    shown = Redactor([NODE], with_hosts=True).text(PRIVATE)
    assert NODE in shown
    assert "10.3.2.1" in shown
    assert {"hunter2", "hunter3", "t0ps3cret", "/home/", "hf_abcdef"} & {*leaks(shown)} == set()


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
        ("/home/ann/x by ann, annual", "~/x by [user], annual"),
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
        ("url?p=%2Fhome%2Fann%2Fx and %2Froot%2Fx", "url?p=~%2Fx and ~%2Fx"),
        (f"wandb API key: {'0123456789' * 4}", "wandb API key: [secret]"),
        ("ann@corp.example wrote", "[address] wrote"),
        ("node 1f4cb9bfbfd10a210911967cc0d3aae75e9e1857822ac4a90be2165d", "node [node id]"),
        ("rank 0 on gpu-3, gpu-31", "rank 0 on host 1, gpu-31"),
        ("logs/gpu-3.log, GPU-3.err.1", "logs/host 1.log, host 1.err.1"),
        ("[gpu-3_17] GPU-3 failed", "[host 1_17] host 1 failed"),
        ("gpu-3_rank0 gpu-3-ib0 log_gpu-3", "host 1_rank0 host 1-ib0 log_host 1"),
        ("rank 1 on a: a gpu of a node", "rank 1 on host 2: a gpu of a node"),
        ("a.b.internal:6379", "[host]:6379"),
        ("worker 10.0.0.3:6379", "worker [address]:6379"),
    ],
)
def test_what_stands_in_the_place_of_what_is_left_out(text: str, shown: str) -> None:
    assert Redactor(["gpu-3", "a"]).text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
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
def test_what_gives_nobody_away_stays(text: str) -> None:
    assert Redactor(["gpu", "a", "vm"]).text(text) == text


@pytest.mark.parametrize(
    "part",
    ["a-", "a_", "a.", "--a", "--key '", '--key "\\"', "a=", "-", "a='", 'password="', "key "],
)
def test_a_long_text_takes_a_time_in_proportion_to_its_length(part: str) -> None:
    began = time.process_time()
    without_secrets(part * 20_000)
    without_secrets('--key "' + part * 20_000)
    assert time.process_time() - began < 2


def test_many_users_and_hosts_take_little_time_for_each_text() -> None:
    users = [f"user{number}" for number in range(1_100)]
    redactor = Redactor([f"node{number}.cluster.example" for number in range(1_100)], users=users)
    redactor.text("x")
    began = time.process_time()
    for number in range(50):
        shown = redactor.text(f"{number} by user{number} on node{number}")
        assert shown == f"{number} by [user] on host {number + 1}"
    assert time.process_time() - began < 2


def test_the_user_of_this_process_is_left_out_unless_everybody_has_that_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOGNAME", "mariecurie")
    assert getpass.getuser() == "mariecurie"
    assert redactor_of(None).text("run of mariecurie") == "run of [user]"
    monkeypatch.setenv("LOGNAME", "root")
    assert redactor_of(None).text("as root") == "as root"


def test_a_home_folder_that_is_everything_replaces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/")
    assert Redactor().text("a/b /c") == "a/b /c"
    monkeypatch.setenv("HOME", "/data/marie")
    assert Redactor().text("/data/marie/x /data/marie2/x") == "~/x /data/marie2/x"


def test_keys_that_would_become_one_are_both_kept() -> None:
    shown = Redactor().values({"10.0.0.1": 1, "10.0.0.2": [("10.0.0.3", 2.5, None, True)]})
    assert shown == {"[address]": 1, "[address] (2)": [["[address]", 2.5, None, True]]}


PIECES = st.sampled_from([*PRIVATE.split(), NODE, "vm", "on", "a", "=", ": ", "/", "~", "[user]"])


@example(["HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345", NODE, "/root/secret-run"], "")
@given(st.lists(PIECES | st.text(max_size=5), max_size=12), st.sampled_from([" ", "", "/", "="]))
def test_leaving_out_twice_is_leaving_out_once(pieces: list[str], between: str) -> None:
    redactor = Redactor([NODE, "vm", "a"], users=["annlee"])
    once = redactor.text(between.join(pieces))
    assert redactor.text(once) == once


@given(st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=9), max_size=12))
def test_words_in_which_names_are_only_a_part_stay(words: list[str]) -> None:
    text = " ".join(f"x{word}vm {word}gpu3x" for word in words)
    assert Redactor(["vm", "gpu3", "gpu"], users=["ann"]).text(text) == text


def test_a_letter_that_looks_like_one_of_a_host_is_no_error() -> None:
    assert Redactor(["server1"]).text("\u017ferver1 and SERVER1") == "[host] and host 1"
