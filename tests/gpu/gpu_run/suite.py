"""Every GPU test, as a list: to add one, add a row here.

World tests (tests/world, tests/fault) mirror their buffers on the device (TUTTI_TEST_DEVICE). Each way to meet and to
reach memory has its rows, with filters that keep them short: on a GPU every rank of every world makes a context.
"""
import re
from dataclasses import dataclass, field

from .building import TESTS, device_examples
from .machine import PROGRAMS, ROOT, module_path, python, train_modes, trainer

SHARES = 4  # of torch's own suite, at the same time

COLLECTIVES = ("World/Collectives.*/{0}_2:World/Collectives.*/{0}_3:World/LargeMessages.*/{0}_2:World/Memory.*/{0}_3:"
               "World/Types.*/{0}_3")
THREADS = "World/Collectives.*/threads_3:World/LargeMessages.*/threads_2:World/Memory.*/threads_3"
EIGHT = "World/Collectives.give*/{0}_8:World/Collectives.may*/{0}_8"
MESSAGES = "World/Messages.*/{0}_3"
RANDOM = "World/RandomPrograms.*/{0}_3:World/RandomPrograms.*/{0}_5"
GROUPS = "World/Groups.*/{0}_3"
# What ends processes with work on the device, which under MPS may end the others' work too.
FAULTS = ("World/Abort.*/shm_3:World/Deadline.*/shm_3:World/Mismatch.*/shm_3:World/Loss.*/shm_3_without_1:"
          "World/ShrinkAfterDeath.*/shm*:World/Shrink.*/shm*:LossOfAll.*:Leaving.*"
          # There a rank comes back with a group that is not mirrored, and calls with host memory.
          "-World/Shrink.lets_ranks_come_back/*")


@dataclass
class Test:
    name: str
    command: list
    environment: dict = field(default_factory=dict)
    limit_s: float = 120
    alone: bool = False       # nothing else uses the GPU meanwhile
    skip: str = ""            # why it cannot be run
    skipped_if: str = ""      # a pattern of outputs that say that it does not work here


def program(name):
    return str(PROGRAMS / "tests" / name)


def world(name, filters, limit_s=150, alone=False, **environment):
    which = {"collectives": "world_collectives", "messages": "world_messages", "random": "world_random",
             "groups": "world_groups", "faults": "fault_world"}[name.split("/")[0]]
    return Test(name, [program(which), f"--gtest_filter={filters}"],
                {"TUTTI_TEST_DEVICE": "cuda", "TUTTI_TUNING": "fixed", **environment}, limit_s, alone)


def of_processes(way, **environment):
    yield world(f"collectives/{way}", COLLECTIVES.format("shm"), **environment)
    yield world(f"collectives/{way}, 8 ranks", EIGHT.format("shm"), **environment)
    yield world(f"messages/{way}", MESSAGES.format("shm"), **environment)
    yield world(f"random/{way}", RANDOM.format("shm"), **environment)
    yield world(f"groups/{way}", GROUPS.format("shm"), **environment)


def of_threads(way, **environment):
    environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"  # a stream for each rank
    # Kernels that wait burn the slices of time that other processes need.
    alone = way == "kernel"
    yield world(f"collectives/{way}, threads", THREADS, alone=alone, **environment)
    yield world(f"random/{way}, threads", "World/RandomPrograms.*/threads_3", alone=alone, **environment)


def streams(mps):
    yield Test("streams", [program("world_device"), f"--gtest_filter=*{'' if mps else '-*kernel*'}"])
    yield Test("streams/one connection", [program("world_device"), "--gtest_filter=*orders*host:OneQueue.*"],
               {"CUDA_DEVICE_MAX_CONNECTIONS": "1"})


def worlds(mps):
    for way in ("host", "memops"):
        yield from of_processes(way, TUTTI_CUDA_MEET=way)
    # Kernels that wait for each other have to run together.
    if mps:
        yield from of_processes("kernel", TUTTI_CUDA_MEET="kernel")
    yield from of_threads("kernel", TUTTI_CUDA_MEET="kernel")
    yield from of_threads("memops", TUTTI_CUDA_MEET="memops")
    for way in ("host", "memops", *(("kernel",) if mps else ())):
        yield world(f"collectives/{way}, pushed", COLLECTIVES.format("shm"), TUTTI_CUDA_MEET=way, TUTTI_CUDA_PUSH="0")
    yield world("random/pushed", RANDOM.format("shm"), TUTTI_CUDA_PUSH="0")
    for name, filters in (("collectives", COLLECTIVES), ("messages", MESSAGES), ("random", RANDOM)):
        yield world(f"{name}/staged", filters.format("shm"), TUTTI_CUDA_REACH="staged")
        yield world(f"{name}/tcp", filters.format("tcp"))
        yield world(f"{name}/one connection", filters.format("shm"), CUDA_DEVICE_MAX_CONNECTIONS="1")
    yield world("groups/one connection", GROUPS.format("shm"), CUDA_DEVICE_MAX_CONNECTIONS="1")
    yield world("collectives/two hosts", "World/Collectives.*/mixed_4:World/Memory.*/mixed_4")
    for way in ("host", "memops", *(("kernel",) if mps else ())):
        yield world(f"faults/{way}", FAULTS, alone=True, TUTTI_CUDA_MEET=way)
    yield world("faults/staged", FAULTS, alone=True, TUTTI_CUDA_REACH="staged")


def kernels(mps):
    yield Test("kernels", [program("gpu_kernels")], {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}, 180)
    yield Test("kernels/graphs", [program("gpu_kernels"), "--gtest_filter=*meet_in_their_kernels*"])
    few = "*f32_sum*:*bf16_max*:Gpu.*:*RanksOnGpu.work*"
    yield Test("kernels/compute-sanitizer",
               ["compute-sanitizer", "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9",
                program("gpu_kernels"),
                f"--gtest_filter={few}"], limit_s=240, skip="it does not work under MPS" if mps else "",
               skipped_if="not supported|Unable to find|internal error|Failed to (initialize|attach)")


def tool():
    tutti = str(PROGRAMS / "bin/tutti")
    yield Test("tool/info", [tutti, "info", "--json"])
    for memory in ("plain", "symmetric"):
        yield Test(f"tool/bench, {memory}", [tutti, "bench", "all", "--device", "cuda", "-n", "3", "-b", "1K", "-e", "1M",
                                             "-f", "1024", "--iters", "3", "--check", "--memory", memory])
    for name in device_examples():
        yield Test(f"example/{name}", [tutti, "run", "-n", "2", str(PROGRAMS / "bin/examples" / name)], limit_s=60)


def interfaces():
    """Other ways to device memory: C, and weights that are handed over."""
    tutti = str(PROGRAMS / "bin/tutti")
    yield Test("C API", [tutti, "run", "-n", "3", program("capi_program"), "devices"], limit_s=60)
    yield Test("hand-over", [program("train_hand_over"), "--gtest_filter=*Gpu*"],
               {"TUTTI_TEST_DRIVER": "real", "TUTTI_TUNING": "fixed"}, 150, alone=True)


def training():
    skip = "" if trainer() else "pretrain_gpt was not built (tests/gpu/run build)"
    yield Test("training, all modes", train_modes("--steps", "8", "--resume", "--dtypes", "fp32", "bf16", "fp16"), limit_s=200, skip=skip)


def python_arrays(path, skip):
    environment = {"TUTTI_TEST_GPU": "real", "TUTTI_BUILD_DIR": str(path.parent if path else ""),
                   "TUTTI_TOOL": str(PROGRAMS / "bin/tutti"), "PYTHONDONTWRITEBYTECODE": "1"}
    yield Test("python/arrays", [python(), "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider",
                                 str(ROOT / "tests/python/test_devices.py")], environment, 150, skip=skip,
               skipped_if="No module named '?(pytest|numpy)")


def torch():
    path = module_path()
    skip = "" if path else "tutti_torch was not built (tests/gpu/run build)"
    yield from python_arrays(path, skip)
    environment = {"PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1", "TUTTI_TUNING": "fixed"}
    suite = str(ROOT / "tests/torch_gpu/run_suite.py")
    for file in sorted((ROOT / "tests/torch_gpu").glob("test_*.py")):
        yield Test(f"torch/{file.stem[len('test_cuda_'):]}", [python(), suite, "-k", file.stem], environment, 240,
                   alone="failures" in file.stem, skip=skip)
    for share in range(1, SHARES + 1):
        yield Test(f"torch/own suite {share} of {SHARES}",
                   [python(), str(ROOT / "tests/torch/conformance.py"), "--cuda", "--limit", "60", "--share",
                    f"{share}/{SHARES}"], environment, 400, skip=skip)


def every_test(mps, only):
    tests = [*torch(), *kernels(mps), *streams(mps), *worlds(mps), *interfaces(), *training(), *tool()]
    if not only:
        return tests
    return [test for test in tests if any(re.search(re.escape(part), test.name) for part in only)]


def missing_programs():
    return [name for name in (*(f"tests/{test}" for test in TESTS), "bin/tutti") if not (PROGRAMS / name).is_file()]
