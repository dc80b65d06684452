"""tutti_torch.DataParallel on CUDA: the weights that one process alone would get."""
import pytest
import torch

import models
from bodies import TORCH, every_rank, torch_at_least
from gpu import ON_GPU, needs_gpu

STEPS = 20


def train_alone(me):
    module = models.make(me.device)
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    for step in range(STEPS):
        torch.stack([models.loss_of(module, me.device, rank, step) for rank in range(me.size)]).mean().backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    return module


@pytest.mark.skipif(ON_GPU and TORCH < (2, 11), reason="older ones do not say which stream compute runs in")
@every_rank(1, 2, 4)
@pytest.mark.parametrize("zero", [0, 1, 2])
def test_weights_are_those_of_one_process_with_torchs_adamw(me, zero):
    import tutti_torch
    model = tutti_torch.DataParallel(models.make(me.device), lr=3e-3, zero=zero, clip=0.5, bucket_mb=0.01)
    for step in range(STEPS):
        models.loss_of(model, me.device, me.rank, step).backward()
        model.step()
    state = model.state_dict()
    models.expect_weights([state[name] for name, _ in model.module.named_parameters()], train_alone(me).parameters())
    assert model.report().mean["step_ms"] > 0
    model.check_weights()
    model.close()


@needs_gpu
@torch_at_least(2, 11)
@every_rank(2)
def test_torchs_grad_scaler_backs_off_on_all_ranks(me):
    import tutti_torch
    model = tutti_torch.DataParallel(models.make(me.device), lr=3e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    outcomes = []
    for step in range(4):
        loss = scaler.scale(models.loss_of(model, me.device, me.rank, step))
        (loss * float("inf") if step == 2 and me.rank == 0 else loss).backward()
        scaler.step(model.optimizer)
        scaler.update()
        outcomes.append(model.last_step.outcome)
    assert outcomes == ["updated", "updated", "skipped", "updated"] and scaler.get_scale() == 512.0
    model.close()
