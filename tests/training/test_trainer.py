"""A run: it learns, it can be stopped anywhere and goes on as if it had not been, and what goes wrong is said."""

import dataclasses
import json
import math
import signal
from dataclasses import replace

import pytest
import torch
from conftest import assert_same_tensors
from safetensors import safe_open
from safetensors.torch import load_file

import torchdeal as td
from torchdeal.training import DivergedError, Report, Trainer
from torchdeal.training.folder import BEST, CHECKPOINT, LAST, LOG
from torchdeal.training.optimiser import learning_rate
from torchdeal.training.state import load_checkpoint


def checkpoint(trainer):
    return trainer.folder / CHECKPOINT


def assert_same_state(one, other):
    """Weights, averages, optimiser and pool, to the last bit; as saved, and as they are in memory."""
    assert one.state.step == other.state.step
    assert_same_tensors(load_checkpoint(checkpoint(one))[0], load_checkpoint(checkpoint(other))[0])
    assert_same_tensors(one.model.state_dict(), other.model.state_dict())
    assert_same_tensors(one.average.state_dict(), other.average.state_dict())
    assert_same_tensors(*({str(k): v for k, v in trainer.pool.items()} for trainer in (one, other)))
    states = [trainer.optimiser.state_dict()["state"] for trainer in (one, other)]
    for index, state in states[0].items():
        assert_same_tensors(state, states[1][index])


def collect(reports):
    """A listener that keeps the reports."""
    return lambda event: reports.append(event) if isinstance(event, Report) else None


# Learning


def test_training_improves_the_validation_psnr(make_trainer):
    trainer = make_trainer(validated=True, engine="packed", data={"batch": 4}, optimiser={"steps": 40})
    before = trainer.validation.scores(trainer.average)[0].psnr
    trainer.run()
    after = trainer.validation.scores(trainer.average)[0].psnr
    assert after > before + 3  # 19.6 and 25.0 dB when this was written
    assert trainer.state.best_psnr == after


def test_a_penalty_on_slow_convergence_makes_it_faster(make_trainer):
    """The bundled weights, since those of a new model contract by much anyway."""
    reports = []
    trainer = make_trainer(
        model=td.load("gray"),
        engine="packed",
        listener=collect(reports),
        loss={"slowness": 100.0, "contraction": 0.0, "occasional": 1},
        task={"sigma": [50, 50]},
        iterations={"outer": [[0.0, 8, 8]], "pool": 1, "visits": 100},  # the same batch each time
        optimiser={"steps": 6, "lr": 2e-3},
        run={"report_every": 2},
    )
    trainer.run()
    first, *_, last = (report.contraction for report in reports)
    assert last < first - 0.1, [r.contraction for r in reports]  # 0.69, 0.45 and 0.27 when this was written
    assert f"contraction {last:.3f}" in str(reports[-1])


TASKS = {
    "blur": {"operator": "blur", "blur_sigma": 1.0},
    "inpainting": {"operator": "inpainting", "known": 0.5},
}


@pytest.mark.parametrize("task", TASKS)
def test_fine_tuning_on_a_task_improves_its_psnr(make_trainer, task):
    levels = {"sigma": [2, 10], "validation_sigma": [5]}
    trainer = make_trainer(validated=True, engine="packed", task=TASKS[task] | levels, optimiser={"steps": 24})
    before = trainer.validation.scores(trainer.average)[0].psnr
    trainer.run()
    assert trainer.validation.scores(trainer.average)[0].psnr > before + 1


def test_a_model_that_is_given_is_where_the_run_starts(make_trainer):
    model = td.DEAL(features=4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = make_trainer(model=model, started_from="elsewhere")
    assert_same_tensors(trainer.model.state_dict(), before)
    trainer.run(until=1)
    assert not torch.equal(trainer.model.kappa, before["kappa"])
    assert load_checkpoint(checkpoint(trainer))[1].started_from == "elsewhere"


@pytest.mark.parametrize("above", [0, 25, 25.5, 27, 49.9])
def test_lower_noise_levels_stay_as_they_are(make_trainer, above):
    model = td.DEAL(features=16)
    below = torch.cat([torch.linspace(0, above, 50), torch.tensor([above])])
    weights = model.weights()
    before = weights.lam(below), weights.alpha(below)
    trainer = make_trainer(model=model, optimiser={"above": above}, task={"sigma": [0, 50]})
    for parameter, trained in trainer.restricted:
        parameter.data += trained  # as far as a run could change it
        assert float(trained.sum()) > 0 or above > 47
    weights = trainer.model.weights()
    assert torch.equal(weights.lam(below), before[0])
    assert torch.equal(weights.alpha(below), before[1])


@pytest.mark.parametrize("engine", ["direct", "quick", "packed"])
def test_only_what_is_done_at_higher_noise_levels_is_trained(make_trainer, engine):
    model = td.DEAL(features=16)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = make_trainer(
        model=model, engine=engine, optimiser={"above": 27}, task={"sigma": [25, 50]}, loss={"slowness": 1}
    )
    trainer.run(until=6)
    for weights in (trainer.model, trainer.average):
        after = weights.state_dict()
        changed = {name for name in before if not torch.equal(after[name], before[name])}
        assert changed == {"kappa", "scaling"}
        assert torch.equal(after["kappa"][:29], before["kappa"][:29])  # knots at -1, 0, ... 27
        assert not (after["kappa"][29:] == before["kappa"][29:]).all()
        assert torch.equal(after["scaling"][:, :8], before["scaling"][:, :8])  # at -1, 3, ... 27
        assert bool((after["scaling"][:, 8:] != before["scaling"][:, 8:]).any(0).all())


def test_a_restricted_run_goes_on_as_if_it_had_not_been_stopped(make_trainer):
    options = {"optimiser": {"above": 27}, "task": {"sigma": [25, 50]}}
    whole, stopped, resumed = (make_trainer(name, **options) for name in ("whole", "stopped", "resumed"))
    whole.run(until=8)
    stopped.run(until=4)
    resumed.resume(checkpoint(stopped))
    resumed.run(until=8)
    assert_same_tensors(resumed.model.state_dict(), whole.model.state_dict())


# Stopping and going on


@pytest.mark.parametrize("engine", ["direct", "packed"])
def test_a_resumed_run_is_the_run_that_was_not_stopped(make_trainer, engine):
    whole = make_trainer("whole", engine=engine)
    whole.run(until=14)
    stopped = make_trainer("stopped", engine=engine)
    stopped.run(until=7)  # 3 slots: in the middle of a round
    resumed = make_trainer("stopped", engine=engine)
    resumed.resume(checkpoint(stopped))
    assert resumed.state.step == 7
    assert resumed.state.seconds == stopped.state.seconds
    resumed.run(until=14)
    assert_same_state(whole, resumed)
    assert not torch.equal(stopped.model.kappa, resumed.model.kappa)


def test_directions_that_are_remembered_go_into_the_checkpoint(make_trainer):
    # 3 slots and every second step: batches whose first visit finds a direction, and others whose second does
    options = {"engine": "packed", "loss": {"slowness": 1.0, "contraction": 0.0, "remember": True, "occasional": 2}}
    options["iterations"] = {"visits": 4}
    whole, stopped, resumed = (make_trainer(name, **options) for name in ("whole", "stopped", "resumed"))
    whole.run(until=12)
    stopped.run(until=7)
    assert stopped.directions
    resumed.resume(checkpoint(stopped))
    assert_same_tensors(*({str(k): v for k, v in trainer.directions.items()} for trainer in (stopped, resumed)))
    resumed.run(until=12)
    assert_same_state(whole, resumed)
    forgetful = make_trainer("forgetful", **{**options, "loss": {**options["loss"], "remember": False}})
    forgetful.run(until=12)
    assert not forgetful.directions
    assert not torch.equal(forgetful.model.kappa, whole.model.kappa)


def test_the_direction_of_another_batch_is_forgotten(make_trainer):
    loss = {"slowness": 1.0, "remember": True, "occasional": 2}
    trainer = make_trainer(engine="packed", loss=loss, iterations={"pool": 3, "visits": 1})
    seen = []
    update = trainer._update
    trainer._update = lambda batch, before, direction, occasional: (
        seen.append(float(direction.abs().max())) or update(batch, before, direction, occasional)
    )
    trainer.run(until=9)
    assert trainer.directions
    assert seen == 9 * [0.0]  # each visit is the first one of its batch


def test_a_run_that_is_killed_goes_on_from_its_last_checkpoint(make_trainer):
    whole = make_trainer("whole", engine="packed")
    whole.run(until=10)
    killed = make_trainer("killed", engine="packed", run={"save_every": 5, "report_every": 4})
    killed.run(until=5)
    killed.save = lambda: None  # what follows is lost
    killed.run(until=8)
    resumed = make_trainer("killed", engine="packed", run={"save_every": 5, "report_every": 4})
    resumed.resume(checkpoint(killed))
    assert resumed.state.step == 5
    resumed.run(until=10)
    assert_same_state(whole, resumed)


def test_a_run_can_be_called_again(make_trainer):
    whole, parts = make_trainer("whole", engine="packed"), make_trainer("parts", engine="packed")
    whole.run(until=4)
    parts.run(until=0)
    assert parts.state.step == 0
    parts.run(seconds=0)
    assert parts.stop_reason == "0 seconds are over"
    assert parts.state.step == 0
    for step in (1, 4):
        parts.run(until=step)
        assert parts.stop_reason is None
    assert_same_state(whole, parts)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_run_after_the_step(make_trainer, name):
    number = getattr(signal, name)
    before = signal.getsignal(number)
    trainer = make_trainer(engine="packed", listener=lambda event: signal.raise_signal(number))
    trainer.run()
    assert trainer.state.step == 4
    assert trainer.stop_reason == name
    assert signal.getsignal(number) is before
    assert load_checkpoint(checkpoint(trainer))[1].step == 4


def test_a_second_ctrl_c_ends_the_run_at_once_and_leaves_what_was_saved(make_trainer):
    trainer = make_trainer(engine="packed")
    trainer.run(until=2)
    saved = {path.name: path.read_bytes() for path in trainer.folder.iterdir()}

    def interrupt(event):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    trainer.listener = interrupt
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    left = {path.name: path.read_bytes() for path in trainer.folder.iterdir()}
    assert saved.items() <= left.items()
    assert left.keys() - saved.keys() <= {LOG}


def test_a_signal_that_is_ignored_stays_so(make_trainer, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        trainer = make_trainer(engine="packed", listener=lambda event: signal.raise_signal(signal.SIGHUP))
        assert trainer.run(until=5).step == 5
    finally:
        signal.signal(signal.SIGHUP, before)


# What goes wrong


def poison(trainer, steps):
    """The loss is not finite in these steps."""
    forward = trainer.training_step.forward

    def poisoned(*arguments):
        result = forward(*arguments)
        if trainer.state.step not in steps:
            return result
        return replace(result, loss=result.loss * math.nan, x=result.x * math.nan)

    trainer.training_step.forward = poisoned


def test_a_rate_that_is_too_high_ends_the_run(make_trainer):
    trainer = make_trainer(engine="packed")
    trainer.run(until=1)
    before = checkpoint(trainer).read_bytes()
    trainer.config = replace(trainer.config, optimiser=replace(trainer.config.optimiser, lr=1e6, warmup=0))
    with pytest.raises(DivergedError, match=r"diverged at about step 4.*Lower optimiser.lr"):
        trainer.run()
    assert checkpoint(trainer).read_bytes() == before
    assert all(bool(value.isfinite().all()) for value in load_checkpoint(checkpoint(trainer))[0].values())


def test_weights_that_are_not_finite_are_not_saved(make_trainer):
    trainer = make_trainer(engine="packed", run={"report_every": 100})
    trainer.run(until=1)
    before = checkpoint(trainer).read_bytes()
    with torch.no_grad():
        trainer.model.phi2[3] = math.nan
    with pytest.raises(DivergedError, match=r"no longer finite at step 2. Lower optimiser.lr"):
        trainer.run(until=2)
    assert checkpoint(trainer).read_bytes() == before


def test_one_gradient_that_is_not_finite_is_passed_over(make_trainer):
    reports = []
    options = {"engine": "packed", "run": {"report_every": 12}, "listener": collect(reports)}
    healthy, trainer = make_trainer("healthy", **options), make_trainer("poisoned", **options)
    poison(trainer, [2])
    for run in (healthy, trainer):
        run.run(until=2)
    assert_same_tensors(trainer.model.state_dict(), healthy.model.state_dict())
    trainer.run(until=12)  # beyond the next visits of the same slot
    assert len(reports) == 1
    assert math.isfinite(reports[0].loss)
    tensors = load_checkpoint(checkpoint(trainer))[0]
    assert [name for name, value in tensors.items() if not bool(value.isfinite().all())] == []


def test_many_gradients_that_are_not_finite_end_the_run(make_trainer):
    trainer = make_trainer(engine="packed", run={"report_every": 4})
    poison(trainer, [1, 2, 3])
    with pytest.raises(DivergedError, match=r"75 % of the last gradients"):
        trainer.run()


@pytest.mark.parametrize("error", [MemoryError, RuntimeError("CUDA out of memory"), ValueError("an odd image")])
def test_steps_are_not_lost_where_the_validation_fails(make_trainer, monkeypatch, error):
    trainer = make_trainer(validated=True, engine="packed", run={"validate_every": 3})

    def fail(model):
        raise error

    monkeypatch.setattr(trainer.validation, "scores", fail)
    with pytest.raises(type(error) if isinstance(error, Exception) else error):
        trainer.run()
    assert load_checkpoint(checkpoint(trainer))[1].step == 3


def test_the_gradient_is_clipped(make_trainer):
    reports = []
    options = {"optimiser": {"clip": 0.5}, "run": {"report_every": 1}, "listener": collect(reports)}
    trainer = make_trainer(engine="packed", **options)
    trainer.run(until=1)
    norm = math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in trainer.model.parameters()))
    assert reports[0].gradient > 1
    assert norm == pytest.approx(0.5, rel=1e-3)


def test_the_average_is_that_of_the_weights(make_trainer):
    trainer = make_trainer(engine="packed", optimiser={"ema": 0.3})
    average = trainer.model.kappa.detach().clone()
    for step in range(6):
        trainer.run(until=step + 1)
        decay = min(0.3, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * trainer.model.kappa.detach()
    torch.testing.assert_close(trainer.average.kappa, average, rtol=1e-5, atol=1e-6)


# What a run leaves behind


def test_the_log_and_the_best_weights(make_trainer):
    trainer = make_trainer(validated=True, engine="packed", run={"validate_every": 4})
    trainer.run(until=8)
    entries = [json.loads(line) for line in (trainer.folder / LOG).read_text().splitlines()]
    assert [(kind, entry["step"]) for line in entries for kind, entry in line.items()] == [
        ("report", 4), ("validation", 4), ("report", 8), ("validation", 8)
    ]  # fmt: skip
    assert entries[0]["report"]["lr"] == learning_rate(3, trainer.config.optimiser)
    assert entries[0]["report"]["steps"] == 16
    psnrs = {line["validation"]["step"]: line["validation"]["scores"][0]["psnr"] for line in entries[1::2]}
    best = max(psnrs, key=psnrs.get)
    assert (trainer.state.best_step, trainer.state.best_psnr) == (best, psnrs[best])

    weights = td.load(trainer.folder / BEST)
    assert (weights.channels, weights.features) == (1, 4)
    assert trainer.validation.scores(weights)[0].psnr == psnrs[best]
    with safe_open(trainer.folder / BEST, framework="pt") as file:
        card = json.loads(file.metadata()["training"])
    assert (card["steps"], card["best_step"], card["best_psnr"]) == (best, best, psnrs[best])
    assert card["config"] == json.loads(json.dumps(dataclasses.asdict(trainer.config)))


def test_without_validation_images_the_last_weights_are_the_best(make_trainer):
    trainer = make_trainer(engine="packed", optimiser={"steps": 2})
    trainer.run()
    assert_same_tensors(load_file(trainer.folder / BEST), load_file(trainer.folder / LAST))
    assert_same_tensors(load_file(trainer.folder / LAST), trainer.average.state_dict())


def test_worse_weights_do_not_replace_the_best(make_trainer):
    trainer = make_trainer(validated=True, engine="packed", run={"validate_every": 1})
    trainer.run(until=1)
    before = (trainer.folder / BEST).read_bytes()
    trainer.state = replace(trainer.state, best_psnr=99.0)
    trainer.run(until=2)
    assert (trainer.folder / BEST).read_bytes() == before
    assert trainer.state.best_step == 1


def test_the_report_is_the_mean_of_its_steps(make_trainer):
    reports, results = [], []
    trainer = make_trainer(engine="packed", listener=collect(reports))
    forward = trainer.training_step.forward
    trainer.training_step.forward = lambda *arguments: results.append(forward(*arguments)) or results[-1]
    trainer.run(until=8)
    assert len(reports) == 2
    for report, seen in zip(reports, (results[:4], results[4:]), strict=True):
        assert report.loss == pytest.approx(sum(float(o.loss.detach()) for o in seen) / 4, rel=1e-5)
        error = sum(float(o.error) for o in seen) / 4 / 16**2
        assert report.psnr == pytest.approx(-10 * math.log10(error), rel=1e-5)


def test_a_run_that_fails_at_its_first_step_leaves_its_folder_to_the_next(make_trainer, monkeypatch):
    trainer = make_trainer(validated=True, model=td.DEAL(features=4), started_from="elsewhere")
    monkeypatch.setattr(Trainer, "_step", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    monkeypatch.undo()
    make_trainer(validated=True, model=td.DEAL(features=4), started_from="elsewhere").run(until=1)


def test_the_start_is_the_best_until_others_are_better(make_trainer):
    model = td.DEAL(features=4)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = make_trainer(validated=True, model=model, started_from="elsewhere")
    trainer.run(until=2)
    assert trainer.state.best_step == 0
    assert_same_tensors(td.load(trainer.folder / BEST).state_dict(), start)


def test_without_validation_images_the_start_is_not_called_the_best(make_trainer):
    trainer = make_trainer(model=td.DEAL(features=4), started_from="elsewhere")
    trainer.run(until=2)
    assert trainer.state.best_step is None
    assert not (trainer.folder / BEST).exists()
