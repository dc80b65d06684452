"""tutti_torch.use_shared_heap: ordinary tensors in memory that the ranks of the host have mapped."""
import os
import re
import sys

from bodies import tutti_only
from test_launchers import HERE, TOOL, needs_tool, run

pytestmark = tutti_only


@needs_tool
def test_training_beside_forked_workers_gives_the_same_bits():
    digests = []
    for heap in "01":
        code, output, errors = run(TOOL, "run", "-n", 2, sys.executable, HERE / "programs/shared_heap.py",
                                   TUTTI_SHARED_HEAP=heap,
                                   PYTHONPATH=os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
        assert code == 0, output + errors
        found = re.findall(r"rank \d: (\w+) grew (\d+) heaps (\d+)", output)
        assert len(found) == 2, output + errors
        for digest, grew, heaps in found:
            digests.append(digest)
            assert (int(grew), int(heaps)) == ((131072, 2) if heap == "1" else (0, 0))
    assert len(set(digests)) == 1


def alone(body):
    """In a fresh process: allocators are replaced for good."""
    code, output, errors = run(sys.executable, "-c", "import torch, tutti_torch\n" + body,
                               TUTTI_SHARED_HEAP_BYTES="8M")
    assert code == 0, output + errors
    return errors


def test_blocks_of_both_allocators_are_given_back():
    alone("""
before = [torch.ones(1 << 18), torch.ones(10)]
tutti_torch.use_shared_heap()
assert tutti_torch.shared_heap_usage().in_use_bytes == 0
small, large = torch.ones(16383), torch.ones(16384)
usage = tutti_torch.shared_heap_usage()
assert usage.in_use_bytes == 65536 and usage.limit_bytes == 8 << 20, usage
assert large.data_ptr() % 64 == 0
before[0].resize_(1 << 19).fill_(2)
large.resize_(1 << 19).fill_(3)
assert tutti_torch.shared_heap_usage().in_use_bytes == 2 << 20
storage = large.storage()
del before, small, large
assert tutti_torch.shared_heap_usage().in_use_bytes == 2 << 20
del storage
usage = tutti_torch.shared_heap_usage()
assert usage.in_use_bytes == 0 and usage.kept_bytes >= 2 << 20, usage
for i in range(100):
    assert bool((torch.full((50_000 + 1000 * i,), float(i)) == i).all())
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
    torch.ones(1 << 18)
assert any(event.cpu_memory_usage >= 1 << 20 for event in seen.key_averages()), seen.key_averages()
tutti_torch.use_shared_heap()  # once more changes nothing
assert tutti_torch.shared_heap_usage().peak_bytes == usage.peak_bytes
""")


def test_what_finds_no_room_lies_elsewhere_and_what_is_nowhere_is_an_error():
    warnings = alone("""
tutti_torch.use_shared_heap()
kept = [torch.full((1 << 19,), float(i)) for i in range(8)]
assert all(bool((tensor == i).all()) for i, tensor in enumerate(kept))
assert 4 << 20 < tutti_torch.shared_heap_usage().in_use_bytes <= 8 << 20
try:
    torch.empty(1 << 60)
except RuntimeError as error:
    assert "memory" in str(error), error
else:
    raise AssertionError("an exbibyte was found")
""")
    assert warnings.count("TUTTI_SHARED_HEAP_BYTES") == 1, warnings


def test_a_forked_child_takes_a_heap_of_its_own_if_it_asks_for_one():
    alone("""
import os
tutti_torch.use_shared_heap()
tensor = torch.full((1 << 16,), 1.0)
child = os.fork()
if child == 0:
    try:
        private = torch.ones(1 << 16)
        assert tutti_torch.shared_heap_usage().limit_bytes == 0
        tutti_torch.use_shared_heap()
        mine = torch.full((1 << 16,), 2.0)
        assert tutti_torch.shared_heap_usage().in_use_bytes == 1 << 18
        tensor += mine + private
        assert bool((tensor == 4).all())
        del tensor, mine, private
        assert tutti_torch.shared_heap_usage().in_use_bytes == 0
    except BaseException as error:
        print(error, flush=True)
        os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert bool((tensor == 1).all())
""")


def test_a_bad_variable_is_named():
    code, _, errors = run(sys.executable, "-c", "import tutti_torch", TUTTI_SHARED_HEAP="perhaps")
    assert code != 0 and "TUTTI_SHARED_HEAP=perhaps" in errors
