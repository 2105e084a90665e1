"""Training loops that are measured as they are."""

from __future__ import annotations

import functools
import gc
import itertools
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from dtsweep import Measure, Point, Sweep, workloads
from dtsweep.loops import no_steps
from dtsweep.loops.loader_watch import LoaderWatch
from dtsweep.loops.no_steps import MOST_PASSES, NoStepsError
from dtsweep.loops.own_loop import LoopTooShortError, OwnLoop
from dtsweep.measure.stopping import LEAST_STEPS
from dtsweep.measure.store_group import GaveUpError, StoreGroup
from dtsweep.metrics.rank_result import Measured
from dtsweep.sweep.task import Task, task_of
from dtsweep.worker.rank import become_rank
from tests.ranks import alone

CPU = torch.device("cpu")
STEPS = 20
MEASURE = Measure(half_width=None, warmup_steps=3, min_steps=STEPS, min_seconds=0, max_seconds=60)
WORKLOAD = workloads.Gpt(layers=1, width=16, sequence=8)


def task(workers: int = 1, **settings: Any) -> Task:
    measure = replace(MEASURE, **settings)
    sweep = Sweep(workload=WORKLOAD, axes={"workers": [workers]}, measure=measure)
    return task_of(sweep, Point(workload=WORKLOAD, workers=workers))


def loader(samples: int, batch: int, **other: Any) -> DataLoader[Any]:
    inputs = torch.randn(samples, 4, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=batch, **other)


def train(batches: Iterable[Any], *, accumulation: int = 1, epochs: int = 100) -> None:
    """A loop as people write it."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for number, (inputs, targets) in enumerate(batches):
            loss = (model(inputs) - targets).square().mean()
            (loss / accumulation).backward()
            time.sleep(0.002)
            if (number + 1) % accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()


def measured(loop: Callable[[], object]) -> Measured:
    context = become_rank(0, CPU, workload=WORKLOAD, own_variables=())
    return OwnLoop(task(), context, StoreGroup(None, rank=0, workers=1)).run(loop)


Step = Callable[[nn.Linear, torch.optim.Optimizer, torch.Tensor], object]


def endless(step: Step, batches: Iterable[Any] | None = None) -> Callable[[], None]:
    """A loop that takes this step for each batch; of 8 samples where none are given."""

    def loop() -> None:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for inputs, _targets in itertools.chain.from_iterable(itertools.repeat(given)):
            step(model, optimizer, inputs)

    given = loader(64, 8) if batches is None else batches
    return loop


def usual_step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()


def test_a_loop_is_timed_by_its_optimizer_and_its_samples_are_counted() -> None:
    batches = loader(64, 8)
    result = measured(lambda: train(batches, accumulation=2))
    assert result.window_steps == STEPS
    assert (result.samples_per_step, result.usual_samples) == (16, 16)
    assert result.samples_reason is None
    assert (result.optimizer_class, result.parameters) == ("AdamW", 5)
    steps = result.of_part("step_s")
    assert len(steps) == STEPS
    # Two passes of 2 ms each.
    assert steps.min() > 0.004
    phases = result.of_part("data_s") + result.of_part("loop_s")
    assert phases == pytest.approx(steps, abs=1e-9)
    assert (result.of_part("data_s") > 0).all()


def test_nothing_of_the_measurement_stays_behind() -> None:
    step, make_iterator = torch.amp.GradScaler.step, DataLoader.__iter__
    was_on = gc.isenabled()
    measured(lambda: train(loader(64, 8)))
    assert torch.amp.GradScaler.step is step
    assert DataLoader.__iter__ is make_iterator
    assert gc.isenabled() is was_on
    # A loop after it is not followed.
    train(loader(64, 8), epochs=1)


def test_a_loop_that_ends_too_early_says_how_many_steps_are_missing() -> None:
    warmup, least = MEASURE.warmup_steps, min(MEASURE.min_steps, LEAST_STEPS)
    with pytest.raises(
        LoopTooShortError, match=rf"ended after 2 .*: {warmup + least - 2} more are"
    ):
        measured(lambda: train(loader(16, 8), epochs=1))


def test_a_loop_that_ends_in_its_window_is_measured_by_what_ran() -> None:
    steps = MEASURE.warmup_steps + min(MEASURE.min_steps, LEAST_STEPS)

    def loop() -> None:
        train(loader(8 * steps, 8), epochs=1)
        time.sleep(0.2)  # a last evaluation, which is not a part of a step

    result = measured(loop)
    assert (result.stop_reason, result.window_steps) == ("ended", steps - MEASURE.warmup_steps)
    assert result.samples_per_step == 8
    of_window = result.steps["step_s"][result.steps["part"] == "window"]
    assert len(of_window) == result.window_steps
    assert result.window_s == pytest.approx(of_window.sum())


def by_hand() -> None:
    weight = torch.zeros(4, requires_grad=True)
    for _ in range(2 * MOST_PASSES):
        weight.sum().backward()
        with torch.no_grad():
            weight -= 0.1


def wait_for_ranks() -> None:
    torch.multiprocessing.spawn(sleep_as_rank, nprocs=1)


def sleep_as_rank(_: int) -> None:
    signal.pause()


@pytest.mark.parametrize(
    ("loop", "words"), [(by_hand, "by hand"), (wait_for_ranks, "torch.multiprocessing.spawn")]
)
def test_a_loop_that_trains_without_steps_is_ended_with_what_was_seen(
    loop: Callable[[], object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(no_steps, "_MOST_S", 0)
    with pytest.raises(NoStepsError, match=f"no step of a torch.optim.Optimizer .*{words}"):
        measured(loop)
    assert not multiprocessing.active_children()
    train(loader(64, 8), epochs=1)


def test_a_loop_that_accumulates_over_many_passes_is_not_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def accumulate() -> None:
        weight = torch.zeros(4, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        while True:
            for _ in range(MOST_PASSES // 4):
                checkpoint(torch.sin, weight, use_reentrant=True).sum().backward()
            optimizer.step()

    monkeypatch.setattr(no_steps, "_MOST_S", 0)
    # A busy machine may add a step to the window.
    assert measured(accumulate).window_steps >= STEPS


class Outer(torch.optim.Optimizer):
    """An optimizer that calls another one."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no loss
        self.inner.step()


def test_an_optimizer_in_another_one_and_a_second_one_count_once() -> None:
    def adversarial(model: nn.Linear, optimizer: Any, inputs: torch.Tensor) -> None:
        if not optimizers:
            optimizers.extend([Outer(optimizer), torch.optim.Adam(other.parameters())])
        for each, own in zip((model, other), optimizers, strict=True):
            usual_step(each, own, inputs)

    other, optimizers = nn.Linear(4, 1), list[torch.optim.Optimizer]()
    result = measured(endless(adversarial))
    assert (result.window_steps, result.samples_per_step) == (STEPS, 8)
    assert result.optimizer_class == "Outer"


def test_a_step_that_raised_does_not_hide_those_after_it() -> None:
    def closing(model: nn.Linear, optimizer: Any, inputs: torch.Tensor) -> None:
        def closure() -> None:
            model(inputs).sum().backward()
            calls.append(None)
            if len(calls) == 2:
                raise ValueError("not finite")

        with suppress(ValueError):
            optimizer.step(closure)

    calls: list[None] = []
    assert measured(endless(closing)).window_steps == STEPS


def test_a_compiled_step_of_an_optimizer_is_followed() -> None:
    def compiled(model: nn.Linear, optimizer: Any, inputs: torch.Tensor) -> None:
        if not steps:
            steps.append(torch.compile(optimizer.step, backend="eager"))
        model(inputs).sum().backward()
        steps[0]()

    steps: list[Any] = []
    with alone():
        result = measured(endless(compiled))
    # Steps that are compiled in the warm-up are long: the clock is looked at in other steps.
    assert result.window_steps >= STEPS
    assert result.samples_per_step == 8


def test_batches_of_an_evaluation_are_not_counted() -> None:
    def evaluating(model: nn.Linear, optimizer: Any, inputs: torch.Tensor) -> None:
        usual_step(model, optimizer, inputs)
        with torch.no_grad():
            for unseen, _ in others:
                model(unseen)

    others = loader(32, 16)
    assert measured(endless(evaluating)).samples_per_step == 8


def test_steps_that_a_scaler_leaves_out_are_flagged() -> None:
    def overflowing(model: nn.Linear, optimizer: Any, inputs: torch.Tensor) -> None:
        loss = model(inputs).sum() * (float("inf") if next(numbers) % 5 == 0 else 1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    numbers = itertools.count(1)
    scaler = torch.amp.GradScaler("cpu", growth_interval=10_000)
    result = measured(endless(overflowing))
    assert result.window_steps == STEPS
    assert "skipped_updates" in result.flags


def counted_losses(passes: int, *, scaler: torch.amp.GradScaler | None = None) -> Measured:
    """A loop whose losses are 1, 2, 3, …, with a penalty's gradient and a checkpoint in each."""
    losses = map(float, itertools.count(1))

    def stepping(model: nn.Linear, optimizer: Any, inputs: torch.Tensor) -> None:
        for _ in range(passes):
            output = checkpoint(model, inputs, use_reentrant=True)
            loss = 0 * output.sum() + next(losses)
            torch.autograd.grad((model.weight**2).sum(), [model.weight])
            (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()

    inputs = torch.ones(8, 4, requires_grad=True)
    return measured(endless(lambda model, optimizer, _: stepping(model, optimizer, inputs)))


@pytest.mark.parametrize("is_scaled", [False, True])
def test_the_loss_of_a_loop_is_the_scalar_on_which_backward_was_called(is_scaled: bool) -> None:
    result = counted_losses(1, scaler=torch.amp.GradScaler("cpu") if is_scaled else None)
    losses = result.steps["loss"]
    # The first step is in no part.
    assert losses.tolist() == [2.0 + number for number in range(len(losses))]
    assert "summed_losses" not in result.flags


def test_losses_of_several_passes_of_a_step_are_added_and_that_is_said() -> None:
    result = counted_losses(2)
    losses = result.steps["loss"]
    assert losses.tolist() == [7.0 + 4 * number for number in range(len(losses))]
    assert "summed_losses" in result.flags


def test_an_optimizer_that_a_loop_makes_again_for_its_model_counts_as_the_same() -> None:
    def again(model: nn.Linear, optimizer: Any, inputs: torch.Tensor) -> None:
        if next(numbers) % 4 == 0:
            made.append(torch.optim.SGD(model.parameters(), lr=0.01))
        usual_step(model, made[-1], inputs)

    numbers, made = itertools.count(), list[torch.optim.Optimizer]()
    result = measured(endless(again))
    assert (result.window_steps, result.samples_per_step) == (STEPS, 8)


def test_the_usual_step_is_that_of_most_passes() -> None:
    def in_short_epochs(model: nn.Linear, optimizer: Any, inputs: torch.Tensor) -> None:
        model(inputs).square().mean().backward()
        # Epochs of 5 batches: steps of 4 passes and of 1 pass.
        if next(numbers) % 5 in (3, 4):
            optimizer.step()
            optimizer.zero_grad()

    numbers = itertools.count()
    result = measured(endless(in_short_epochs, loader(40, 8)))
    # Neither is usual, so it is the mean, 2 or 3 passes.
    assert result.usual_samples in (16, 24)
    assert result.samples_per_step == pytest.approx(20, abs=2)


def test_loaders_that_a_loop_makes_again_in_each_epoch_count_together() -> None:
    data = loader(32, 8).dataset
    epochs = (DataLoader(data, batch_size=8) for _ in itertools.count())
    result = measured(endless(usual_step, itertools.chain.from_iterable(epochs)))
    assert (result.samples_per_step, result.samples_reason) == (8, None)


def test_steps_of_one_optimizer_without_a_backward_between_them_count_once() -> None:
    def by_groups(model: nn.Linear, optimizer: Any, inputs: torch.Tensor) -> None:
        """As DeepSpeed's ZeRO: the optimizer has one group of parameters after the other."""
        model(inputs).square().mean().backward()
        for parameter in model.parameters():
            optimizer.param_groups = [{**optimizer.param_groups[0], "params": [parameter]}]
            optimizer.step()

    assert measured(endless(by_groups)).samples_per_step == 8


def test_steps_whose_backward_is_not_seen_count_each() -> None:
    def without_backward(model: nn.Linear, optimizer: Any, inputs: torch.Tensor) -> None:
        model.weight.grad = inputs.mean(0, keepdim=True)
        optimizer.step()

    assert measured(endless(without_backward)).samples_per_step == 8


def test_a_loop_that_ends_early_does_not_keep_other_ranks_waiting() -> None:
    store = distributed.HashStore()  # type: ignore[attr-defined]  # missing in torch's stub
    for rank, error in ((1, LoopTooShortError), (0, GaveUpError)):
        context = become_rank(rank, CPU, workload=WORKLOAD, own_variables=())
        group = StoreGroup(store, rank=rank, workers=2, timeout_s=60)
        epochs = 100
        if rank:
            # It ends while it warms up.
            epochs = 1
        batches = loader(16, 8)
        with pytest.raises(error):
            OwnLoop(task(2), context, group).run(functools.partial(train, batches, epochs=epochs))


def test_optimizers_that_share_parameters_are_not_the_same() -> None:
    def with_two_heads() -> None:
        body, heads = nn.Linear(4, 4), [nn.Linear(4, 1), nn.Linear(4, 1)]
        # A group without parameters is allowed.
        groups: list[Any] = [
            [{"params": []}, {"params": [*body.parameters(), *head.parameters()]}] for head in heads
        ]
        optimizers = [torch.optim.SGD(group, lr=0.01) for group in groups]
        batches = loader(32, 8)
        for inputs, _targets in itertools.chain.from_iterable(itertools.repeat(batches, 100)):
            for head, optimizer in zip(heads, optimizers, strict=True):
                optimizer.zero_grad()
                head(body(inputs)).square().mean().backward()
                optimizer.step()

    result = measured(with_two_heads)
    assert (result.window_steps, result.samples_per_step) == (STEPS, 8)


def test_samples_of_no_loader_are_unknown_with_the_reason() -> None:
    result = measured(endless(usual_step, [(torch.ones(8, 4), torch.ones(8, 1))] * 8))
    assert result.samples_per_step is None
    assert str(result.samples_reason).startswith("no DataLoader gave a batch")


class Numbers(IterableDataset[torch.Tensor]):
    """Samples of 4 values; or batches of its own."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.ones(*self.shape) for _ in range(20))


def with_boxes(samples: list[Any]) -> Any:
    """A batch whose first tensor has as many rows as there are boxes in its pictures."""
    return torch.ones(3 * len(samples), 6), torch.stack([sample[0] for sample in samples])


@pytest.mark.parametrize(
    ("batches", "sizes"),
    [
        (loader(40, 16), [16, 16, 8]),
        (loader(40, 16, collate_fn=with_boxes), [16, 16, 8]),
        # As many pairs as samples, each with 4 values.
        (loader(40, 16, collate_fn=list), [16, 16, 8]),
        (loader(40, 16, collate_fn=list, num_workers=1), [16, 16, 8]),
        (DataLoader(Numbers(4), batch_size=8), [8, 8, 4]),
        (DataLoader(Numbers(4), batch_size=8, collate_fn=list), [8, 8, 4]),
        (DataLoader(Numbers(4), batch_size=8, collate_fn=torch.cat), [None] * 3),
        # Packed tokens look like samples.
        (DataLoader(Numbers(4096), batch_size=None), [None] * 20),
    ],
)
def test_samples_are_those_that_a_loader_was_asked_for(
    batches: DataLoader[Any], sizes: list[int | None]
) -> None:
    watch = LoaderWatch(lambda _: None)
    with watch.watched():
        for _ in range(2):
            list(batches)
    (count,) = watch.counts()
    assert count.sizes == sizes * 2
    assert (count.reason is None) is (None not in sizes)


def test_a_loader_whose_workers_persist_begins_each_epoch_with_its_own_batches() -> None:
    watch = LoaderWatch(lambda _: None)
    batches = loader(40, 16, num_workers=1, persistent_workers=True)
    with watch.watched():
        next(iter(batches))
        list(batches)
    (count,) = watch.counts()
    assert count.sizes == [16, 16, 16, 8]


def test_a_smaller_last_batch_counts_as_what_it_is() -> None:
    result = measured(lambda: train(loader(60, 8)))
    assert result.usual_samples == 8
    assert 7 < (result.samples_per_step or 0) < 8
    assert str(result.samples_reason).startswith("batches have from 4 to 8 samples")
