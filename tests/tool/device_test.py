"""`tutti bench --device cuda` and `tutti info` on an emulated GPU (tests/support/fake_cuda), and without one."""
import json
import os
import stat
import unittest

from launching import TOOL, LaunchTest

FAKE = os.environ.get("TUTTI_FAKE_CUDA", "")
# Stands in for NVIDIA's program: notes what it is told, and stays as a daemon until it is told to quit.
CONTROL = """#!/bin/bash
echo "control $*" >> {notes}
if [ "$1" = -d ]; then
  touch "$CUDA_MPS_PIPE_DIRECTORY/control"
  setsid bash -c 'exec -a nvidia-cuda-mps-control sleep 300' < /dev/null > /dev/null 2>&1 &
  echo $! > "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
  sleep 0.1
else
  read order
  echo "$order" >> {notes}
  kill $(cat "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid")
fi
"""


class Device(LaunchTest):
    def on_gpu(self, *words, **environment):
        return self.tutti(*words, LD_LIBRARY_PATH=FAKE, TUTTI_TUNING="fixed", **environment)


@unittest.skipUnless(FAKE, "this build has no CUDA")
class OnEmulatedGpu(Device):
    SMALL = ("-n", "2", "-b", "4K", "-e", "4K", "--iters", "3")

    def results(self, *words, **environment):
        path = os.path.join(self.folder, "bench.json")
        done = self.on_gpu("bench", *words, "--json", path, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, encoding="utf-8") as file:
            return json.load(file), done.stdout

    def test_every_collective_is_right_on_both_kinds_of_memory(self):
        for memory in ("plain", "symmetric"):
            found, table = self.results("all", "--device", "cuda", "--check", "--memory", memory, *self.SMALL)
            self.assertEqual({row["device"] for row in found["results"]}, {"cuda"})
            self.assertEqual({row["wrong"] for row in found["results"]}, {0})
            self.assertEqual({row["memory"] for row in found["results"]}, {memory})
            self.assertIn("copy ceiling", table)

    def test_rows_have_what_only_a_device_has(self):
        found, table = self.results("all_reduce", "--device", "cuda", *self.SMALL, TUTTI_CUDA_MEET="memops")
        self.assertEqual(found["machine"]["gpu"], "emulated GPU 0")
        self.assertFalse(found["machine"]["mps"])
        ceiling = found["machine"]["copy_ceiling_gbs"]
        self.assertGreater(ceiling, 0)
        for row in found["results"]:
            self.assertEqual(row["meeting"], "memops")
            self.assertGreater(row["host_us"], 0)
            self.assertIsNone(row["predicted_us"])
            # 2 · S · n bytes at the ceiling
            floor_us = 2 * 4096 * 2 / (ceiling * 1e3)
            self.assertAlmostEqual(row["floor_share"] * row["time_us"]["median"] / floor_us, 1, places=6)
        self.assertIn("host", table)

    def test_ranks_may_be_threads_and_gpus_several(self):
        found, _ = self.results("all_gather", "--device", "cuda", "--transport", "inproc", *self.SMALL)
        self.assertEqual(found["results"][0]["wrong"], 0)
        found, _ = self.results("all_gather", "--device", "cuda", *self.SMALL, FAKE_CUDA_DEVICES="2")
        self.assertEqual(found["results"][0]["wrong"], 0)

    def test_mps_is_started_for_the_ranks_and_quit_after_them(self):
        notes, control = (os.path.join(self.folder, name) for name in ("notes", "nvidia-cuda-mps-control"))
        with open(control, "w", encoding="utf-8") as file:
            file.write(CONTROL.format(notes=notes))
        os.chmod(control, stat.S_IRWXU)
        done = self.on_gpu("bench", "all_reduce", "--device", "cuda", "--mps", *self.SMALL, FAKE_CUDA_MPS="1",
                           PATH=f"{self.folder}:{os.environ['PATH']}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("under MPS", done.stdout)
        with open(notes, encoding="utf-8") as file:
            self.assertEqual(file.read().split("\n"), ["control -d", "control ", "quit", ""])

    def test_a_trace_has_lanes_of_the_device(self):
        for way in ("host", "memops", "kernel"):
            traces, merged = (os.path.join(self.folder, name + way) for name in ("traces", "merged"))
            done = self.on_gpu("run", "-n", "2", TOOL, "bench", "all_reduce", "--device", "cuda", *self.SMALL,
                               TUTTI_TRACE_DIR=traces, TUTTI_CUDA_MEET=way)
            self.assertEqual(done.returncode, 0, done.stderr)
            done = self.tutti("trace", "merge", traces, "-o", merged)
            self.assertEqual((done.returncode, done.stderr), (0, ""))  # and both traces are whole
            with open(merged, encoding="utf-8") as file:
                slices = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
            host = {(each["pid"], each["args"]["Sequence"]): each for each in slices
                    if each["cat"] == "communication"}
            device = [each for each in slices if each["cat"] == "device"]
            self.assertGreater(len(device), 20, way)
            for each in device:
                beside = host[each["pid"], each["args"]["Sequence"]]
                self.assertEqual(each["name"], "all_reduce")
                self.assertEqual(each["args"]["Bytes"], beside["args"]["Bytes"])
                # Within what the host saw of it, but for the time that noting it takes where others have the cores.
                self.assertGreaterEqual(each["ts"], beside["ts"] - 50_000)
                self.assertLessEqual(each["ts"] + each["dur"], beside["ts"] + beside["dur"] + 50_000)

    def test_mps_that_is_not_there_is_said(self):
        done = self.on_gpu("bench", "all_reduce", "--device", "cuda", "--mps", *self.SMALL)
        self.assertEqual(done.returncode, 1)
        self.assertIn("nvidia-cuda-mps-control is not on the PATH", done.stderr)

    def test_info_lists_gpus(self):
        done = self.on_gpu("info", "--json", FAKE_CUDA_DEVICES="2", TUTTI_CUDA_MEET="host")
        gpus = json.loads(done.stdout)["gpus"]
        self.assertTrue(gpus["built_in"])
        self.assertIsNone(gpus["why_none"])
        self.assertEqual([gpu["name"] for gpu in gpus["devices"]], ["emulated GPU 0", "emulated GPU 1"])
        self.assertEqual([gpu["reaches"] for gpu in gpus["devices"]], [[1], [0]])
        self.assertEqual(gpus["devices"][0]["compute_capability"], "9.0")
        self.assertEqual(gpus["meeting"]["asked"], "host")
        self.assertEqual(gpus["meeting"]["likely"], "host")
        text = self.on_gpu("info", FAKE_CUDA_DEVICES="2", FAKE_CUDA_NO_PEERS="1", FAKE_CUDA_MPS="1").stdout
        self.assertIn("cuda:1  emulated GPU 1, 1.0 GiB, compute capability 9.0", text)
        self.assertIn("reaches the memory of no other", text)
        self.assertIn("MPS on", text)
        self.assertIn("most likely by kernel", text)

    def test_info_finds_a_daemon_by_its_pipe_directory(self):
        with open(os.path.join(self.folder, "control"), "w", encoding="utf-8"):
            pass
        done = self.on_gpu("info", "--json", CUDA_MPS_PIPE_DIRECTORY=self.folder)
        self.assertEqual(json.loads(done.stdout)["gpus"]["mps"], {"pipe_directory": self.folder, "daemon": True})


class WithoutGpu(Device):
    def test_wrong_words_end_with_2(self):
        for words, said in ((("--mps",), "--mps is about GPUs"),
                            (("--device", "gpu"), "there is no --device 'gpu'"),
                            (("--device", "cuda", "--algorithm", "ring"), "--algorithm is about CPU memory"),
                            (("--device", "cuda", "--mps", "--transport", "inproc"), "--mps is for processes")):
            done = self.tutti("bench", "all_reduce", *words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(said, done.stderr)

    def test_mps_is_refused_inside_a_job(self):
        done = self.tutti("run", "-n", "2", TOOL, "bench", "all_reduce", "--device", "cuda", "--mps")
        self.assertEqual(done.returncode, 2)
        self.assertIn("not inside a job", done.stderr)

    def test_no_gpu_is_said_once(self):
        environment = {"LD_LIBRARY_PATH": FAKE, "FAKE_CUDA_DEVICES": "0"} if FAKE else {}
        done = self.tutti("bench", "all_reduce", "-n", "3", "--device", "cuda", "-e", "4", **environment)
        self.assertEqual(done.returncode, 1)
        said = [line for line in done.stderr.splitlines() if line.startswith("tutti bench: ")]
        self.assertEqual(len(said), 1, done.stderr)
        self.assertIn("--device cuda: ", said[0])
        done = self.tutti("info", **environment)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"GPUs\n  none: (cuInit failed: no CUDA-capable|this build has no CUDA)")


if __name__ == "__main__":
    unittest.main()
