"""Where things are, which GPU there is, and a private MPS daemon."""
import contextlib
import datetime
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(os.environ.get("TUTTI_GPU_BUILD", ROOT / "build-gpu")).resolve()
PACKED = PROGRAMS.with_name(PROGRAMS.name + ".tar.xz")  # the same, to be carried
TREE = ROOT / "build-gpu-tree"  # what PROGRAMS is made from; need not be carried
MODULES = ROOT / "build-gpu-modules"
LOGS = ROOT / "build-gpu-logs"
SKIPPED = 77

# In a process of its own: the driver must not be initialised in one that starts others.
LOOK = """
import ctypes, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    sys.exit(f"there is no CUDA driver: {error}")
count = ctypes.c_int()
if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
    sys.exit("the CUDA driver sees no GPU")
for number in range(count.value):
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, 256, number)
    print(name.value.decode())
"""


class Problem(Exception):
    """What cannot go on, in one line."""


def end_in_order():
    """An end by a signal also ends what was started."""
    def end(number, _):
        sys.exit(128 + number)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, end)


def python():
    return os.environ.get("TUTTI_GPU_PYTHON", "python3")


def environment(**more):
    """Of programs: what steers this script would be unknown variables to them."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("TUTTI_GPU_")}, **more}


def module_path():
    """Where tutti_torch is: beside the programs where the whole build made it, else where --torch-only did."""
    for folder in (MODULES / "python", PROGRAMS / "python"):
        if any(folder.glob("tutti_torch/_C*.so")):
            return folder
    return None


def trainer():
    """pretrain_gpt for the torch that is here; None where it was not built."""
    for path in (MODULES / "bin/pretrain_gpt", PROGRAMS / "bin/pretrain_gpt"):
        if path.is_file():
            return path
    return None


def train_modes(*words):
    """The command that trains in all modes."""
    return [str(word) for word in (ROOT / "tests/gpu/train_modes", "--tool", PROGRAMS / "bin/tutti", "--program", trainer(), *words)]


def gpus():
    """Their names; ([], why) where there are none."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        return [], done.stderr.strip().splitlines()[-1]
    return done.stdout.split("\n")[:-1], ""


def driver_version():
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=30, check=False)
        if done.returncode == 0:
            return done.stdout.split("\n")[0]
    return "unknown"


def headline(what, names, mps):
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return f"# {what}: {date}, {' + '.join(names)}, driver {driver_version()}, {'MPS' if mps else 'no MPS'}"


@contextlib.contextmanager
def mps_daemon(wanted):
    """The environment of its clients, or nothing if it is not wanted; the daemon is gone afterwards."""
    if not wanted:
        yield {}
        return
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        raise Problem("--mps: nvidia-cuda-mps-control is not on the PATH")
    folder = tempfile.mkdtemp(prefix="tutti_mps_")
    where = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
    for path in where.values():
        os.mkdir(path)
    own = environment(**where)
    try:
        # It goes into the background with whatever it inherits: never a pipe that somebody reads to its end.
        with open(f"{folder}/start", "w", encoding="utf-8") as output:
            started = subprocess.run([control, "-d"], env=own, stdin=subprocess.DEVNULL, stdout=output,
                                     stderr=output, timeout=30, check=False)
        if started.returncode:
            raise Problem(f"--mps: nvidia-cuda-mps-control -d ended with {started.returncode}: "
                          f"{Path(folder, 'start').read_text(encoding='utf-8').strip()}")
        # Two queues are what a client has otherwise: streams would hold each other up.
        yield {"CUDA_DEVICE_MAX_CONNECTIONS": "8", **where}
    finally:
        quit_daemon(control, own)
        shutil.rmtree(folder, ignore_errors=True)


def quit_daemon(control, own):
    """By its own command; where that does not help, by the number it has left in its pipe directory."""
    number = None
    with contextlib.suppress(OSError, ValueError):
        number = int(Path(own["CUDA_MPS_PIPE_DIRECTORY"], "nvidia-cuda-mps-control.pid").read_text(
            encoding="utf-8"))
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run([control], input="quit\n", env=own, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, text=True, timeout=20, check=False)
    for _ in range(50):
        if number is None or not is_daemon(number):
            return
        time.sleep(0.1)
    with contextlib.suppress(OSError):
        os.kill(number, signal.SIGKILL)


def is_daemon(number):
    with contextlib.suppress(OSError):
        return "mps-control" in Path(f"/proc/{number}/cmdline").read_text(encoding="utf-8", errors="replace")
    return False
