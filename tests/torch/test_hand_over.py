"""tutti_torch.hand_over: whole versions of a model's weights, for receivers beside the training."""
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist

from bodies import BACKEND, every_rank

pytestmark = pytest.mark.skipif(BACKEND != "tutti", reason=f"{BACKEND} hands over nothing")
TRAINER = 0


def weights_of(version):
    """Every element says the version; one tensor does not lie in order, one is empty, one a number."""
    value = float(version)
    return {"layer.weight": torch.full((300, 500), value), "layer.bias": torch.full((7, 3), value).t(),
            "half": torch.full((1001,), value, dtype=torch.bfloat16), "none": torch.empty(0, 4),
            "steps": torch.tensor(version), "mask": torch.ones(5, dtype=torch.bool)}


def expect_whole(receiver):
    expected = weights_of(receiver.version)
    assert list(receiver.weights) == list(expected)
    for name, tensor in receiver.weights.items():
        assert tensor.dtype == expected[name].dtype and torch.equal(tensor, expected[name]), name


def hand_over():
    import tutti_torch
    return tutti_torch.hand_over


@every_rank(3)
@pytest.mark.parametrize("lend", [False, True])
def test_receivers_see_whole_versions(me, lend):
    if me.rank == TRAINER:
        with hand_over().Sender() as sender:
            for version in range(1, 13):
                sender.send(version, weights_of(version), lend=lend)
                # What was lent is kept until it is through, also where nobody else holds it.
            sender.flush()
            assert sender.lost() == {}
            dist.barrier()
    else:
        with hand_over().Receiver() as receiver:
            assert receiver.version == 0 and receiver.weights == {}
            while receiver.version < 12:
                if receiver.poll():
                    expect_whole(receiver)
            dist.barrier()


@every_rank(2)
def test_a_module_is_updated(me):
    torch.manual_seed(me.rank)
    model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.BatchNorm1d(20), torch.nn.Linear(20, 3))
    inputs = torch.linspace(-1, 1, 40).view(4, 10)
    if me.rank == TRAINER:
        with hand_over().Sender(receivers=[1]) as sender:
            sender.send(7, model.state_dict())
            sender.flush()
            expected = model.eval()(inputs)
            dist.broadcast(expected.detach(), TRAINER)
    else:
        with hand_over().Receiver(trainer=TRAINER, device="cpu") as receiver:
            receiver.wait_for(7, 30)
            model.load_state_dict(receiver.weights)
            expected = torch.empty(4, 3)
            dist.broadcast(expected, TRAINER)
            assert torch.equal(model.eval()(inputs), expected)


@every_rank(2)
def test_what_cannot_be_sent_is_named(me):
    import tutti_torch
    if me.rank == TRAINER:
        sender = hand_over().Sender(receivers=[1])
        sender.send(3, {"a": torch.ones(3)})
        with pytest.raises(tutti_torch.InvalidArgument, match="not newer than 3"):
            sender.send(3, {"a": torch.ones(3)})
        with pytest.raises(tutti_torch.InvalidArgument, match="'b' is of type ComplexFloat"):
            sender.send(4, {"a": torch.ones(3), "b": torch.ones(3, dtype=torch.complex64)})
        with pytest.raises(tutti_torch.InvalidArgument, match="sparse"):
            sender.send(4, {"a": torch.eye(3).to_sparse()})
        sender.flush()
        sender.close()
        with pytest.raises(tutti_torch.Aborted, match="closed"):
            sender.send(5, {})
    else:
        with pytest.raises(tutti_torch.InvalidArgument, match="not on meta"):
            hand_over().Receiver(device="meta")
        receiver = hand_over().Receiver()
        receiver.wait_for(3, 30)
        with pytest.raises(tutti_torch.PeerLost):
            receiver.wait_for(4, 30)
        assert receiver.version == 3 and torch.equal(receiver.weights["a"], torch.ones(3))
        receiver.close()
    dist.barrier()


@every_rank(2)
def test_what_is_shown_lives_as_long_as_a_view_of_it(me):
    if me.rank == TRAINER:
        with hand_over().Sender() as sender:
            sender.send(1, weights_of(1))
            sender.flush()
            dist.barrier()
    else:
        receiver = hand_over().Receiver()
        receiver.wait_for(1, 30)
        kept = receiver.weights["layer.weight"]
        receiver.close()
        del receiver
        dist.barrier()
        assert torch.equal(kept, weights_of(1)["layer.weight"])


def train_on(me):
    """Rank 0 of three; sends until a receiver is lost, and then some more."""
    sender = hand_over().Sender()
    begin, version = time.monotonic(), 0
    while not sender.lost() and time.monotonic() - begin < 30:
        version += 1
        sender.send(version, weights_of(version))
        sender.flush()
    for _ in range(5):
        version += 1
        sender.send(version, weights_of(version))
    sender.flush()
    lost = {rank: (type(why).__name__, str(why)) for rank, why in sender.lost().items()}
    sender.close()
    return version, lost


def receive_on(me):
    import tutti_torch
    receiver = hand_over().Receiver()
    try:
        while True:
            if receiver.poll():
                expect_whole(receiver)
                if me.rank == 1 and receiver.version == 5:
                    os.kill(os.getpid(), signal.SIGKILL)
    except tutti_torch.PeerLost:
        expect_whole(receiver)
        return receiver.version


def test_a_killed_receiver_is_named_and_the_other_gets_every_version(lone_world):
    world = lone_world(3)
    world.start(train_on, only=[0])
    world.start(receive_on, only=[1, 2])
    answers = world.collect()
    assert answers[1][0] == "died"
    assert answers[0][0] == "result" and answers[2][0] == "result", answers
    version, lost = answers[0][1]
    assert list(lost) == [1] and lost[1][0] == "PeerLost" and "rank 1" in lost[1][1]
    assert answers[2][1] == version


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLE = [sys.executable, os.path.join(ROOT, "examples", "hand_over_generator.py")]


def test_the_example_updates_a_running_generator():
    tool = os.environ.get("TUTTI_TOOL") or os.path.join(ROOT, "build", "bin", "tutti")
    if not os.path.exists(tool):
        pytest.skip("the tutti command is not there")
    done = subprocess.run([tool, "run", "-n", "2", *EXAMPLE, "--steps", "40"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the last version is the trainer's, to the bit" in done.stdout, done.stdout


def test_the_example_updates_generators_of_other_jobs(tmp_path):
    key = tmp_path / "job.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    words = ["--secret-file", str(key), "--steps", "40"]
    with subprocess.Popen([*EXAMPLE, "--role", "trainer", "--address", "127.0.0.1:0", "--wait", *words],
                          stdout=subprocess.PIPE, text=True) as trainer:
        try:
            address = trainer.stdout.readline().split()[-1]
            generator = subprocess.run([*EXAMPLE, "--role", "generator", "--address", address, *words],
                                       capture_output=True, text=True, timeout=120)
            trained, _ = trainer.communicate(timeout=120)
        finally:
            trainer.kill()
    assert generator.returncode == 0 and trainer.returncode == 0, generator.stdout + generator.stderr + trained
    weights = [line.split()[-1] for line in (trained + generator.stdout).splitlines() if "the weights are" in line]
    assert len(weights) == 2 and weights[0] == weights[1], trained + generator.stdout


def test_a_secret_that_others_can_read_is_refused(tmp_path):
    import tutti_torch
    key = tmp_path / "job.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o644)
    with pytest.raises(tutti_torch.InvalidArgument, match="job.key"):
        hand_over().Receiver(address="127.0.0.1:1", secret_file=str(key))
    with pytest.raises(tutti_torch.InvalidArgument, match="give a file with a secret"):
        hand_over().Sender(receivers=[], address="127.0.0.1:0")
