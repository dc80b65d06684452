"""Weights that are handed over between processes on one GPU: whole versions, in stream order, whoever is killed."""
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist

from bodies import every_rank
from gpu import DEVICE, ON_GPU, busy, expect, needs_gpu, timed

TRAINER = 0


def hand_over():
    import tutti_torch
    return tutti_torch.hand_over


def weights_of(me, version):
    value = float(version)
    return {"weight": torch.full((2000, 500), value, device=me.device),
            "turned": torch.full((70, 30), value, device=me.device).t(),
            "half": torch.full((1001,), value, dtype=torch.bfloat16, device=me.device),
            "none": torch.empty(0, 4, device=me.device), "steps": torch.tensor(version, device=me.device)}


def expect_whole(me, receiver, device=None):
    expected = weights_of(me, receiver.version)
    assert list(receiver.weights) == list(expected)
    for name, tensor in receiver.weights.items():
        assert tensor.device == (device or me.device), tensor.device
        expect(tensor, expected[name].to(tensor.device))


@every_rank(2, 4)
@pytest.mark.parametrize("lend", [False, True])
def test_receivers_see_whole_versions(me, lend):
    if me.rank == TRAINER:
        with hand_over().Sender() as sender:
            for version in range(1, 13):
                weights = weights_of(me, version)
                sender.send(version, weights, lend=lend)
                if lend:
                    sender.flush()
                for tensor in weights.values():
                    tensor.fill_(-1)  # in the same stream
            sender.flush()
            assert sender.lost() == {}
            dist.barrier()
    else:
        with hand_over().Receiver() as receiver:
            while receiver.version < 12:
                if receiver.poll():
                    expect_whole(me, receiver)
            dist.barrier()


@every_rank(2)
@pytest.mark.parametrize("there", ["cpu", DEVICE])
def test_between_the_cpu_and_a_gpu(me, there):
    cpu = torch.device("cpu")
    if me.rank == TRAINER:
        with hand_over().Sender() as sender:
            for version in range(1, 4):
                weights = weights_of(me, version)
                if there != "cpu":
                    weights = {name: tensor.cpu() for name, tensor in weights.items()}
                sender.send(version, weights)
            sender.flush()
            assert sender.lost() == {}
            dist.barrier()
    else:
        with hand_over().Receiver(device=there) as receiver:
            receiver.wait_for(3, 30)
            expect_whole(me, receiver, cpu if there == "cpu" else None)
            dist.barrier()


@needs_gpu
@every_rank(2)
@pytest.mark.parametrize("lend", [False, True])
def test_a_version_follows_the_stream_and_does_not_hold_up_the_host(me, lend):
    busy(0.001)
    torch.cuda.synchronize()
    if me.rank == TRAINER:
        sender = hand_over().Sender()
        weights = weights_of(me, 1)
        sender.send(1, weights, lend=lend)  # the first maps memory
        sender.flush()
        dist.barrier()
        busy(0.3)
        for tensor in weights.values():
            tensor.fill_(2)
        took = timed(lambda: sender.send(2, weights, lend=lend))
        assert took < 0.1, f"the host was held up for {took:.3f} s"
        sender.flush()
        for tensor in weights.values():
            tensor.fill_(-1)
        sender.send(3, weights_of(me, 3))
        sender.flush()
        dist.barrier()
        sender.close()
    else:
        receiver = hand_over().Receiver()
        receiver.wait_for(1, 30)
        dist.barrier()
        receiver.wait_for(2, 30)
        expect_whole(me, receiver)
        # Read much later, while the next versions come.
        busy(0.2)
        kept = {name: tensor.clone() for name, tensor in receiver.weights.items()}
        took = timed(receiver.poll)
        assert took < 0.1, f"the host was held up for {took:.3f} s"
        receiver.wait_for(3, 30)
        for name, tensor in weights_of(me, 2).items():
            expect(kept[name], tensor)
        expect_whole(me, receiver)
        dist.barrier()
        receiver.close()


@every_rank(2)
def test_a_module_is_updated_to_the_bit(me):
    torch.manual_seed(me.rank)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).to(me.device)
    for round_ in range(1, 4):
        if me.rank == TRAINER:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.normal_()
            if round_ == 1:
                me.sender = hand_over().Sender()
            me.sender.send(round_, model.state_dict())
        else:
            if round_ == 1:
                me.receiver = hand_over().Receiver()
            me.receiver.wait_for(round_, 30)
            model.load_state_dict(me.receiver.weights)
        theirs = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        mine = theirs.clone()
        dist.broadcast(theirs, TRAINER)
        expect(mine, theirs)
    (me.sender if me.rank == TRAINER else me.receiver).close()
    dist.barrier()


def train_on(me):
    """Rank 0 of three; sends until a receiver is lost, and then some more."""
    sender = hand_over().Sender()
    begin, version = time.monotonic(), 0
    while not sender.lost() and time.monotonic() - begin < 30:
        version += 1
        sender.send(version, weights_of(me, version))
        sender.flush()
    for _ in range(5):
        version += 1
        sender.send(version, weights_of(me, version))
    sender.flush()
    lost = {rank: type(why).__name__ for rank, why in sender.lost().items()}
    sender.close()
    return version, lost


def receive_on(me):
    """Rank 1 dies when it has five versions, with nothing of its own under way on the GPU."""
    import tutti_torch
    receiver = hand_over().Receiver()
    try:
        while True:
            if receiver.poll():
                expect_whole(me, receiver)
                if me.rank == 1 and receiver.version >= 5:
                    if ON_GPU:
                        torch.cuda.synchronize()
                    os.kill(os.getpid(), signal.SIGKILL)
    except tutti_torch.PeerLost:
        expect_whole(me, receiver)
        return receiver.version


def test_a_killed_receiver_harms_nobody(lone_world):
    world = lone_world(3)
    world.start(train_on, only=[0])
    world.start(receive_on, only=[1, 2])
    answers = world.collect()
    assert answers[1][0] == "died", answers
    assert answers[0][0] == "result" and answers[2][0] == "result", answers
    version, lost = answers[0][1]
    assert lost == {1: "PeerLost"}
    assert answers[2][1] == version


def die_while_training(me):
    sender = hand_over().Sender()
    for version in range(1, 5):
        sender.send(version, weights_of(me, version))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_trainer_leaves_the_last_whole_version(lone_world):
    world = lone_world(3)
    world.start(die_while_training, only=[0])
    world.start(receive_to_the_end, only=[1, 2])
    answers = world.collect()
    assert answers[0][0] == "died", answers
    for rank in (1, 2):
        assert answers[rank][0] == "result" and answers[rank][1] >= 3, answers


def receive_to_the_end(me):
    import tutti_torch
    receiver = hand_over().Receiver()
    try:
        while True:
            if receiver.poll():
                expect_whole(me, receiver)
    except tutti_torch.PeerLost:
        expect_whole(me, receiver)
        return receiver.version


def test_the_example_updates_a_running_generator():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    tool = os.environ.get("TUTTI_TOOL") or os.path.join(root, "build", "bin", "tutti")
    if not os.path.exists(tool):
        pytest.skip("the tutti command is not there")
    program = [sys.executable, os.path.join(root, "examples", "hand_over_generator.py"), "--device", DEVICE]
    done = subprocess.run([tool, "run", "-n", "2", *program], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the last version is the trainer's, to the bit" in done.stdout, done.stdout
