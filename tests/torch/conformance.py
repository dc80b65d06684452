#!/usr/bin/python3
"""Runs the suite for backends that torch carries inside its own package, on tutti.

The suite knows torch's own backends by name. Here its lists of what a backend can do are extended from
outside, and tests that it keeps for gloo or MPI because they use CPU tensors are run too. Ranks are
forked, not spawned: importing torch four times for each of two hundred tests would take half an hour.

    PYTHONPATH=build/python tests/torch/conformance.py --quick
    PYTHONPATH=build/python tests/torch/conformance.py -k all_gather -k test_ddp --verbose
    tests/torch/conformance.py --backend gloo --json gloo.json     # what torch's own backend passes
    PYTHONPATH=build/python tests/torch/conformance.py --cuda --share 2/5    # a fifth of what uses GPUs

With --cuda all ranks share the first GPU, which passes for several (one_gpu.py), and the tests are those whose code
speaks of one, NCCL's own among them. What fails is tried with gloo in the same setting: what gloo does not pass there
either is no failure of tutti's, and is listed as skipped.

Exit code 0: nothing failed; 1: something did; 77: there is no suite here.
"""
import argparse
import contextlib
import inspect
import io
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
import types
import unittest

SKIPPED = 77
# Reasons of the suite to skip a test that a backend for CPU tensors can run all the same.
CPU_CAN = re.compile(
    r"get_future is only supported|Only gloo backend supports timeouts|GLOO Batch Send Recv CPU|"
    r"Only MPI supports|one of \{[^}]*'gloo'|Only Nccl & Gloo backend support|supports? all_gather_v|"
    r"supports? reduce_scatter_v|available \{'gloo'\}|sparse all reduce|"
    r"available \{'(nccl|gloo)', '(nccl|gloo)'\}")
# And one for CUDA tensors.
CUDA_CAN = re.compile(r"only.*nccl|nccl.*only|one of \{[^}]*'nccl'|available \{[^}]*'nccl'", re.IGNORECASE)
# Cannot pass on any backend whose name is not in the suite, whatever it does.
KNOWN_TO_FAIL = {
    name: "makes its model for backends named gloo, mpi or nccl alone" for name in
    ("test_accumulate_gradients_no_sync", "test_accumulate_gradients_no_sync_allreduce_hook",
     "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
     "test_accumulate_gradients_no_sync_grad_is_view")}
KNOWN_TO_FAIL_ON_2 = {"test_ddp_logging_data_cpu": "torch 2 calls every backend but its own 'custom'"}
# One or two of each kind, well under a minute together.
QUICK = """
test_all_gather test_all_gather_group test_all_gather_complex test_all_gather_coalesced_simple
test_all_gather_object_default_pg test_all_reduce_sum test_all_reduce_max test_all_reduce_product
test_all_reduce_group_min test_all_reduce_full_group_sum test_all_reduce_sum_async
test_all_reduce_sum_complex test_all_reduce_coalesced_sum test_all_reduce_coalesced_group_max
test_all_to_all test_all_to_all_complex test_all_to_all_group
test_all_to_all_single_equal_split test_all_to_all_single_unequal_split
test_all_to_all_single_unequal_split_group test_barrier test_barrier_group
test_batch_isend_irecv_gloo test_broadcast test_broadcast_group test_broadcast_object_list
test_destroy_group test_gather test_gather_group test_gather_object test_get_rank test_get_backend
test_irecv test_isend test_isend_autograd_profiler test_new_subgroups_by_enumeration
test_reduce_max test_reduce_sum test_reduce_group_sum test_scatter test_scatter_checks
test_scatter_object_list test_send_recv test_send_recv_any_source test_send_recv_with_tag
test_DistributedDataParallelCPU test_DistributedDataParallelCPU_grad_is_view test_ddp_join_model_equivalence
test_get_future test_ddp_comm_hook_logging test_DistributedSampler_padding test_nccl_backend_bool_allreduce
""".split()


def share_of(text):
    part, whole = (int(number) for number in text.split("/"))
    if not 1 <= part <= whole:
        raise ValueError
    return part, whole


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--world-size", type=int, default=4 if (os.cpu_count() or 1) >= 4 else 3,
                        help="ranks (default 4, or 3 on fewer than 4 cores)")
    parser.add_argument("-k", dest="patterns", action="append", default=[], metavar="PART",
                        help="only tests whose name has this part; repeatable")
    parser.add_argument("--quick", action="store_true", help="a selection of under a minute")
    parser.add_argument("--tests", metavar="NAME,…", type=lambda text: text.split(","), help="only these")
    parser.add_argument("--cuda", action="store_true", help="tests that use GPUs, with one that all ranks share")
    parser.add_argument("--share", metavar="K/N", type=share_of, default=(1, 1),
                        help="of the selected tests every Nth, beginning with the Kth")
    parser.add_argument("--limit", type=float, default=60, metavar="S", help="seconds a test may take")
    parser.add_argument("--list", action="store_true", help="only name the tests")
    parser.add_argument("--json", metavar="FILE", help="write every test's outcome there")
    parser.add_argument("--verbose", action="store_true", help="failures with all they printed")
    return parser.parse_args()


def load(options):
    """The suite's module, told that the backend exists."""
    os.environ.update(BACKEND=options.backend, WORLD_SIZE=str(options.world_size),
                      INIT_METHOD="file:///nowhere", MASTER_ADDR="127.0.0.1")
    if options.cuda:  # what looks for GPUs must not touch CUDA: ranks are forked
        os.environ.update(CUDA_VISIBLE_DEVICES=os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
                          PYTORCH_NVML_BASED_CUDA_CHECK="1")
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # with fewer GPUs than ranks it would skip everything
    os.environ.setdefault("TUTTI_TUNING", "fixed")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.argv = sys.argv[:1]  # the suite's modules read it when they are imported
    try:
        import torch
        if options.backend == "tutti":
            import tutti_torch  # noqa: F401
        if options.cuda:
            share_one_gpu(options.world_size)
        try:
            import expecttest  # noqa: F401
        except ImportError:  # of which the suite needs two names alone
            stand_in = types.ModuleType("expecttest")
            stand_in.TestCase, stand_in.ACCEPT = unittest.TestCase, False
            sys.modules["expecttest"] = stand_in
        from torch.testing._internal import common_distributed as common
        common.DistTestCases.backend_feature["plugin"].add(options.backend)
        for feature in ("ddp", "subgroup") + (("gpu", "cuda") if options.cuda else ()):
            common.DistTestCases.backend_feature[feature].add(options.backend)
        from torch.testing._internal.distributed import distributed_test as suite
    except ImportError as missing:
        print(f"skipped: {missing}")
        sys.exit(SKIPPED)
    torch.set_num_threads(1)
    # The suite asks for a line per process and barrier, and tells of failures twice.
    logging.getLogger().setLevel(logging.WARNING)
    common.logger.setLevel(logging.ERROR if options.verbose else logging.CRITICAL)
    with contextlib.suppress(ImportError):  # Python 3.11 cannot import what torch 1.13 replicates with
        from torch.nn.parallel import _replicated_tensor_ddp_utils as replicated
        replicated._set_ddp_with_replicated_tensor = lambda _: None
    for names in (suite.PROFILING_SUPPORTED_BACKENDS, suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        names.append(options.backend)
    common.get_timeout = lambda _: options.limit
    if options.backend == "tutti":  # torch's function takes gloo alone
        suite.dist.monitored_barrier = tutti_torch.monitored_barrier
    return suite


def share_one_gpu(ranks):
    import torch
    import one_gpu
    if not torch.cuda.is_available():
        print("skipped: there is no GPU that this torch can use")
        sys.exit(SKIPPED)
    one_gpu.pretend(ranks)
    if not one_gpu.can_be_forked():
        print("skipped: looking for GPUs has touched CUDA (is there no NVML?), and ranks are forked from here")
        sys.exit(SKIPPED)


def unlock(suite, cuda):
    """Tests that are kept for others for no reason that holds here."""
    for name in dir(suite.DistributedTest._DistTestBase):
        test = getattr(suite.DistributedTest._DistTestBase, name)
        why = getattr(test, "__unittest_skip_why__", "")
        if CPU_CAN.search(why) or (cuda and CUDA_CAN.search(why)):
            test.__unittest_skip__ = False


def speaks_of_gpus(case, name):
    return re.search("cuda|gpu", inspect.getsource(getattr(case, name)), re.IGNORECASE) is not None


def make_case(suite):
    import torch.multiprocessing

    class Conformance(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            suite.INIT_METHOD = os.environ["INIT_METHOD"]  # the suite makes one for each test
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        def _spawn_processes(self, *_, **__):
            pass  # torch 2 calls it from a setUp of its own

    return Conformance


def run_one(case, name):
    """(outcome, why, seconds)."""
    result = unittest.TestResult()
    output = io.StringIO()
    begin = time.monotonic()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        case(name).run(result)
    took = time.monotonic() - begin
    if result.skipped:
        return "skipped", result.skipped[0][1], took
    bad = result.failures + result.errors
    if bad:
        return "failed", bad[0][1] + output.getvalue(), took
    return "passed", "", took


def summary_of(why):
    """The line that says what was raised."""
    lines = [line for line in why.splitlines()
             if re.match(r"[\w.]+: ", line) and "exited with error code" not in line]
    return (lines[0] if lines else why.strip().splitlines()[-1])[:300]


def selected(case, options):
    names = unittest.TestLoader().getTestCaseNames(case)
    if options.cuda:
        names = [name for name in names if speaks_of_gpus(case, name)]
    if options.tests:
        names = [name for name in names if name in options.tests]
    if options.quick:
        absent = sorted(set(QUICK) - set(names))
        if absent:  # renamed, or gone with another torch: what it was there for is tested no more
            sys.exit(f"torch's suite has no {', '.join(absent)}")
        names = QUICK
    names = [name for name in names
             if not options.patterns or any(part in name for part in options.patterns)]
    part, whole = options.share
    return names[part - 1::whole]


def passed_by_gloo(names, options):
    """Those of the tests that torch's own backend passes in the same setting."""
    with tempfile.TemporaryDirectory(prefix="conformance_") as folder:
        command = [sys.executable, os.path.abspath(__file__), "--cuda", "--backend", "gloo", "--json",
                   f"{folder}/gloo.json", "--world-size", str(options.world_size), "--limit",
                   str(options.limit), "--tests", ",".join(names)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        try:
            with open(f"{folder}/gloo.json", encoding="utf-8") as file:
                tests = json.load(file)["tests"]
        except FileNotFoundError:
            print(f"gloo could not be asked:\n{done.stdout}")
            return set(names)
    return {name for name in names if tests[name]["outcome"] == "passed"}


def excuse(outcomes, options):
    """What failed, and fails with gloo too, is skipped."""
    failed = [name for name, outcome in outcomes.items() if outcome["outcome"] == "failed"]
    if not failed or not options.cuda or options.backend == "gloo":
        return
    print(f"with gloo: {len(failed)} that failed", flush=True)
    for name in sorted(set(failed) - passed_by_gloo(failed, options)):
        print(f"skipped: {name}: gloo does not pass it here either", flush=True)
        outcomes[name]["outcome"] = "skipped"


def main():
    options = parse()
    suite = load(options)
    unlock(suite, options.cuda)
    if not suite.torch.__version__.startswith("1."):
        KNOWN_TO_FAIL.update(KNOWN_TO_FAIL_ON_2)
    case = make_case(suite)
    names = selected(case, options)
    if not names:
        print("no test has such a name", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(names))
        return 0
    outcomes = {}
    for name in names:
        if name in KNOWN_TO_FAIL and options.backend == "tutti":
            outcome, why, took = "skipped", KNOWN_TO_FAIL[name], 0.0
        else:
            outcome, why, took = run_one(case, name)
        outcomes[name] = {"outcome": outcome, "why": why, "seconds": round(took, 2)}
        print(f"{outcome:8s}{took:6.1f} s  {name}" if outcome != "skipped" else
              f"skipped: {name}: {summary_of(why)}", flush=True)
        if outcome == "failed":
            print("    " + (why.replace("\n", "\n    ") if options.verbose else summary_of(why)), flush=True)
    excuse(outcomes, options)
    count = {kind: sum(o["outcome"] == kind for o in outcomes.values())
             for kind in ("passed", "failed", "skipped")}
    print(", ".join(f"{number} {kind}" for kind, number in count.items()) +
          f" in {sum(o['seconds'] for o in outcomes.values()):.0f} s")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"backend": options.backend, "world_size": options.world_size,
                       "tests": outcomes}, file, indent=1)
    if not count["passed"]:
        reasons = [o["why"] for o in outcomes.values() if o["outcome"] == "skipped"]
        print(f"nothing was run; most often because: {max(set(reasons), key=reasons.count)}"
              if reasons else "nothing passed", file=sys.stderr)
        return 1
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
