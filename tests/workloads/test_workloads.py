import dataclasses
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dtsweep.errors import SweepError
from dtsweep.workloads import WORKLOADS, Cifar10Cnn, Gpt, Transformers, Workload
from dtsweep.workloads.gpt import stride_between, text_windows
from dtsweep.workloads.samples import POOL_SAMPLES, take
from dtsweep.workloads.transformers import MODELS

CPU = torch.device("cpu")
SMALL_LLAMA = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 16,
    "vocab_size": 64,
}
SMALL_ENCODER = {
    name: SMALL_LLAMA[name]
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
}
RESNET = {"embedding_size": 8, "hidden_sizes": [8] * 4, "depths": [1] * 4, "num_labels": 4}
TINY = {
    "resnet-50": Transformers("resnet-50", RESNET, image_size=64),
    "vit-base": Transformers(
        "vit-base", SMALL_ENCODER | {"patch_size": 8, "num_labels": 4}, image_size=16
    ),
    "bert-base": Transformers("bert-base", SMALL_ENCODER | {"vocab_size": 64}, sequence=8),
    "gpt2": Transformers(
        "gpt2",
        {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 64, "n_positions": 8},
        sequence=8,
    ),
    **{
        name: Transformers(name, SMALL_LLAMA, sequence=8)
        for name in ("llama-160m", "llama-1b", "llama-8b")
    },
}
EXAMPLES: dict[str, list[Workload]] = {
    "Cifar10Cnn": [Cifar10Cnn()],
    "Gpt": [
        Gpt(layers=1, width=16, sequence=8, heads=2, data=data) for data in ("synthetic", "pydoc")
    ],
    "Transformers": list(TINY.values()),
}
each_workload = pytest.mark.parametrize(
    "workload", [workload for group in EXAMPLES.values() for workload in group], ids=repr
)


def fresh(workload: Any) -> Any:
    """The same fields in another instance, as another rank has it."""
    return dataclasses.replace(workload)


def tensors(batch: Any) -> list[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        return [batch]
    parts = batch.values() if isinstance(batch, dict) else batch
    return [tensor for part in parts for tensor in tensors(part)]


def trained_losses(workload: Workload, *, samples: int) -> list[float]:
    torch.manual_seed(0)
    model = workload.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(30):
        batch = workload.batch(range(step * samples, (step + 1) * samples), CPU)
        loss = workload.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def write_records(file: Path, classes: list[int]) -> Path:
    file.write_bytes(b"".join(bytes([label]) + bytes([label * 20]) * 3072 for label in classes))
    return file


# --- every workload


def test_every_workload_of_the_mapping_is_tested() -> None:
    assert EXAMPLES.keys() == WORKLOADS.keys()
    assert TINY.keys() == MODELS.keys()


@each_workload
def test_same_seed_gives_the_same_weights_and_another_seed_others(workload: Workload) -> None:
    weights = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        weights.append(torch.nn.utils.parameters_to_vector(fresh(workload).build().parameters()))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@each_workload
def test_same_numbers_give_the_same_data_on_every_rank_whatever_came_before(
    workload: Workload,
) -> None:
    torch.manual_seed(3)
    first, second = fresh(workload), fresh(workload)
    expected = tensors(first.batch(range(4, 8), CPU))
    second.build()
    second.batch(range(100, 130), CPU)
    for left, right in zip(expected, tensors(second.batch(range(4, 8), CPU)), strict=True):
        assert torch.equal(left, right)
    assert not torch.equal(expected[0][0], expected[0][1])


@each_workload
def test_shares_of_two_ranks_are_together_the_whole_batch(workload: Workload) -> None:
    # The pool ends inside the second share, so that a batch across its end is compared too.
    start = POOL_SAMPLES - 6
    whole = tensors(workload.batch(range(start, start + 8), CPU))
    shares = [tensors(fresh(workload).batch(range(start + i, start + i + 4), CPU)) for i in (0, 4)]
    for tensor, left, right in zip(whole, *shares, strict=True):
        assert len(left) == len(right) == 4
        assert torch.equal(tensor, torch.cat([left, right]))


@each_workload
def test_loss_is_a_finite_scalar_that_reaches_every_parameter_and_repeats(
    workload: Workload,
) -> None:
    model = workload.build()
    batch = workload.batch(range(4), CPU)
    loss = workload.loss(model, batch)
    loss.backward()
    assert loss.shape == ()
    assert loss.isfinite()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
    assert torch.equal(loss, workload.loss(model, batch))


@each_workload
def test_loss_is_the_mean_over_the_samples(workload: Workload) -> None:
    # Evaluation mode, because batch normalisation in training mixes the samples.
    model = workload.build().eval()
    whole, *halves = (
        workload.loss(model, workload.batch(range(*ends), CPU)).item()
        for ends in ((0, 4), (0, 2), (2, 4))
    )
    assert whole == pytest.approx(sum(halves) / 2, rel=1e-4)


@each_workload
def test_pickle_has_the_fields_and_not_the_samples(workload: Workload) -> None:
    workload.batch(range(2), CPU)
    pickled = pickle.dumps(workload)
    assert len(pickled) < 1000
    assert pickle.loads(pickled) == workload


# --- samples by number


def test_following_numbers_are_a_view_of_the_pool_and_only_a_wrap_copies() -> None:
    pool = torch.arange(10)
    view = take(pool, range(12, 15))
    assert view.tolist() == [2, 3, 4]
    assert view.data_ptr() == pool[2:].data_ptr()
    assert take(pool, range(8, 12)).tolist() == [8, 9, 0, 1]
    assert take(pool, range(7, 16, 4)).tolist() == [7, 1, 5]
    assert take(pool, range(7, 7)).tolist() == []


def test_text_windows_visit_every_position_once() -> None:
    text = torch.arange(12, dtype=torch.uint8)
    samples = text_windows(text, range(10), length=3)
    assert sorted(samples[:, 0].tolist()) == list(range(10))
    assert torch.equal(samples - samples[:, :1], torch.arange(3).expand(10, 3))
    assert torch.equal(text_windows(text, range(10, 20), length=3), samples)


@pytest.mark.parametrize("positions", [1, 2, 6, 30, 210, 466_000])
def test_stride_between_windows_has_no_divisor_in_common_with_the_positions(positions: int) -> None:
    assert math.gcd(stride_between(positions), positions) == 1


def test_synthetic_samples_come_from_the_seed_and_leave_the_generator_alone() -> None:
    batches = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        batches.append(Gpt().batch(range(4), CPU))
        after_drawing = torch.rand(())
        torch.manual_seed(seed)
        assert torch.equal(after_drawing, torch.rand(()))
    assert not torch.equal(*batches)


# --- Cifar10Cnn


def test_cifar10_network_has_the_parameters_counted_by_hand() -> None:
    convolutions = (3 * 9 * 16 + 16) + (16 * 9 * 32 + 32)
    dense = (32 * 8 * 8 * 128 + 128) + (128 * 10 + 10)
    assert convolutions + dense == 268_650
    assert sum(parameter.numel() for parameter in Cifar10Cnn().build().parameters()) == 268_650


def test_cifar10_file_gives_its_classes_and_normalised_images(tmp_path: Path) -> None:
    file = write_records(tmp_path / "images.bin", [3, 9, 0])
    images, classes = Cifar10Cnn(data=str(file)).batch(range(5), CPU)
    assert classes.tolist() == [3, 9, 0, 3, 9]
    assert images.shape == (5, 3, 32, 32)
    # 3 × 20 of 255, in the red channel: mean 0.4914, deviation 0.2470.
    assert images[0, 0, 31, 31].item() == pytest.approx((60 / 255 - 0.4914) / 0.2470, rel=1e-4)
    assert images[1, 2, 0, 0].item() == pytest.approx((180 / 255 - 0.4465) / 0.2616, rel=1e-4)


def test_cifar10_folder_gives_its_training_files_in_order(tmp_path: Path) -> None:
    write_records(tmp_path / "data_batch_2.bin", [5])
    write_records(tmp_path / "data_batch_1.bin", [1, 2])
    write_records(tmp_path / "test_batch.bin", [9])
    assert Cifar10Cnn(data=str(tmp_path)).batch(range(3), CPU)[1].tolist() == [1, 2, 5]


def test_cifar10_data_of_another_layout_is_refused_with_the_reason(tmp_path: Path) -> None:
    for name in ("data_batch_1", "renamed.bin"):
        (tmp_path / name).write_bytes(pickle.dumps({"data": [1]}))
    (tmp_path / "short.bin").write_bytes(bytes(3000))
    (tmp_path / "empty.bin").write_bytes(b"")
    write_records(tmp_path / "classes.bin", [1, 10])
    (tmp_path / "folder").mkdir()
    pickled = "unpickling runs code; get the binary version"
    for name, reason in {
        ".": pickled,
        "data_batch_1": pickled,
        "renamed.bin": pickled,
        "short.bin": "short.bin has 3000 bytes",
        "empty.bin": "empty.bin has 0 bytes",
        "classes.bin": "classes.bin has a class over 9",
        "folder": "no data_batch_\\*.bin in .*folder",
        "absent.bin": "can't read .*absent.bin: No such file",
    }.items():
        with pytest.raises(SweepError, match=reason):
            Cifar10Cnn(data=str(tmp_path / name)).batch(range(1), CPU)


def test_cifar10_loss_falls_on_real_images() -> None:
    folder = os.environ.get("DTSWEEP_TEST_DATA")
    if not folder:
        pytest.skip("DTSWEEP_TEST_DATA is not set: no folder to take cifar10 from")
    losses = trained_losses(Cifar10Cnn(data=str(Path(folder) / "cifar10")), samples=64)
    assert sum(losses[-5:]) / 5 < losses[0] - 0.15


# --- Gpt


def test_gpt_has_the_parameters_counted_by_hand() -> None:
    width, sequence, vocabulary = 16, 8, 300
    attention = 2 * width + (3 * width * width + 3 * width) + (width * width + width)
    mlp = 2 * width + (4 * width * width + 4 * width) + (4 * width * width + width)
    outside = vocabulary * width + sequence * width + 2 * width + width * vocabulary
    model = Gpt(layers=3, width=width, sequence=sequence, heads=2, vocabulary=vocabulary).build()
    assert sum(parameter.numel() for parameter in model.parameters()) == outside + 3 * (
        attention + mlp
    )


def test_gpt_does_not_look_ahead() -> None:
    model = Gpt(layers=2, width=16, sequence=8, heads=2).build()
    tokens = torch.randint(0, 256, (1, 8))
    changed = tokens.clone()
    changed[0, 5] = (tokens[0, 5] + 1) % 256
    difference = (model(tokens) - model(changed)).abs().amax(dim=2)[0]
    assert (difference[:5] == 0).all()
    assert (difference[5:] > 0).all()


def test_gpt_loss_is_that_of_the_next_token(tmp_path: Path) -> None:
    class KnowsTheAlphabet(torch.nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return 100.0 * torch.nn.functional.one_hot(tokens + 1, 256)

    (tmp_path / "text.txt").write_text("abcdefghijklmnopqrstuvwxyz")
    workload = Gpt(sequence=8, data=str(tmp_path / "text.txt"))
    assert workload.loss(KnowsTheAlphabet(), workload.batch(range(8), CPU)).item() == pytest.approx(
        0, abs=1e-6
    )


def test_gpt_starts_at_the_loss_of_guessing() -> None:
    torch.manual_seed(0)
    workload = Gpt(layers=2, width=64, sequence=32)
    loss = workload.loss(workload.build(), workload.batch(range(8), CPU))
    assert loss.item() == pytest.approx(5.545, abs=0.1)  # ln 256


def test_gpt_loss_falls_on_the_documentation_of_python() -> None:
    workload = Gpt(layers=2, width=64, sequence=32, data="pydoc")
    losses = trained_losses(workload, samples=16)
    assert losses[-1] < losses[0] - 1


def test_gpt_refuses_text_that_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("x" * 128)
    (tmp_path / "binary").write_bytes(b"\xff" * 1000)
    for name, reason in {
        "short.txt": "short.txt has 128 bytes, and a sample needs 129",
        "binary": "binary is not UTF-8 text",
        "absent.txt": "can't read the text .*absent.txt: No such file",
        ".": "can't read the text .*: Is a directory",
    }.items():
        with pytest.raises(SweepError, match=reason):
            Gpt(data=str(tmp_path / name)).batch(range(1), CPU)


# --- fields


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"width": 100, "heads": 3}, "width is a multiple of heads"),
        ({"layers": 0}, "layers is a whole number from 1"),
        ({"width": 256.0}, "width is a whole number from 1"),
        ({"sequence": True}, "sequence is a whole number from 1"),
        ({"data": "pydocs"}, "neither 'synthetic' nor 'pydoc'|did you mean 'pydoc'"),
        ({"data": 3}, "nor a path that exists"),
        ({"data": ""}, "nor a path that exists"),
        ({"data": "pydoc", "vocabulary": 100}, "256 or more"),
    ],
)
def test_gpt_refuses_fields_that_cannot_be(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(SweepError, match=reason):
        Gpt(**fields)


def test_a_relative_path_is_made_absolute_and_stays_when_the_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.bin").write_bytes(b"\x01" * 3073)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    workload = Gpt(data="data.bin")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert workload.data == str(tmp_path / "data.bin")
    assert dataclasses.replace(workload) == workload
    workload.batch(range(2), CPU)
    with pytest.raises(SweepError, match=r"nor a path that exists in .*elsewhere"):
        Gpt(data="data.bin")


def test_a_misspelt_model_gets_the_nearest_name_and_overrides_are_a_dict() -> None:
    with pytest.raises(SweepError, match=r"'gpt-2'\) is unknown; did you mean 'gpt2'\?"):
        Transformers("gpt-2")
    with pytest.raises(SweepError, match="a dict of configuration fields"):
        Transformers("gpt2", overrides=[1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (
            Transformers("bert-base", {"hiden_size": 8}),
            "'hiden_size' is not a field of BertConfig; .*'hidden_size'",
        ),
        (
            Transformers("gpt2", {"hidden_size": 8}),
            "'hidden_size' is not a field of GPT2Config; .*'n_embd'",
        ),
        (Transformers("vit-base", {"image_size": 32}), r"Transformers\(image_size=...\)"),
        (Transformers("bert-base", sequence=513), "bert-base takes at most 512"),
        (Transformers("gpt2", sequence=1025), "gpt2 takes at most 1024"),
    ],
    ids=repr,
)
def test_overrides_that_the_model_does_not_have_are_refused(
    workload: Transformers, reason: str
) -> None:
    with pytest.raises(SweepError, match=reason):
        workload.build()


# --- Transformers


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("resnet-50", 25_557_032),
        ("vit-base", 86_567_656),
        ("gpt2", 124_439_808),
        ("llama-1b", 1_235_814_400),
        ("llama-8b", 8_030_261_248),
    ],
)
def test_models_have_their_published_number_of_parameters(model: str, parameters: int) -> None:
    with torch.device("meta"):
        network = Transformers(model).build()
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


def test_models_have_no_dropout() -> None:
    for workload in TINY.values():
        rates = [m.p for m in workload.build().modules() if isinstance(m, torch.nn.Dropout)]
        assert not any(rates)


def test_decoders_predict_the_next_token_and_bert_the_token_itself() -> None:
    for name in ("gpt2", "llama-160m"):
        arguments, wanted = TINY[name].batch(range(4), CPU)
        assert torch.equal(wanted[:, :-1], arguments["input_ids"][:, 1:])
        assert wanted.shape == (4, 8)
    arguments, wanted = TINY["bert-base"].batch(range(4), CPU)
    assert torch.equal(wanted, arguments["input_ids"])


def test_tokens_are_counted_where_there_are_some() -> None:
    images = ("resnet-50", "vit-base")
    for name, workload in TINY.items():
        assert workload.tokens_per_sample == (None if name in images else 8)


def test_missing_library_is_said_with_the_command_that_installs_it() -> None:
    code = """
import sys
sys.modules["transformers"] = None  # what Python finds where the library is absent
from dtsweep.workloads import Transformers
Transformers("gpt2").build()
"""
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert run.returncode == 1
    assert "SweepError" in run.stderr
    assert "pip install 'dtsweep[models]'" in run.stderr
