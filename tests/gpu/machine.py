"""Finds what a machine with a GPU has: the driver, NVIDIA's libraries, tools, Python's packages."""

import ctypes
import glob
import os
import platform
import shutil
import subprocess
import sysconfig

LIBRARIES = {"libcublasLt": "cublasLtGetVersion", "libcudnn": "cudnnGetVersion", "libnccl": "ncclGetVersion"}


def find_library(name):
    """Returns the paths of a library such as libnccl: Python's packages first, then the toolkit, then the system."""
    packages = [sysconfig.get_paths()[key] for key in ("purelib", "platlib")]
    packages += glob.glob("/usr/lib/python3*/site-packages") + glob.glob("/usr/local/lib/python3*/dist-packages")
    patterns = [os.path.join(folder, "nvidia", "*", "lib", name + ".so.*") for folder in dict.fromkeys(packages)]
    patterns += [f"/usr/local/cuda*/lib64/{name}.so.*", f"/usr/local/cuda*/targets/*/lib/{name}.so.*",
                 f"/usr/lib/x86_64-linux-gnu/{name}.so.*", f"/usr/local/lib/{name}.so.*", f"/opt/*/lib/{name}.so.*"]
    found = {}
    for pattern in patterns:
        for path in sorted(glob.glob(pattern)):
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def library_version(path, function):
    """Returns the version that a library reports of itself, or text that says why not."""
    # Another process asks: two versions of one library in this process could disagree.
    program = ("import ctypes, sys\n"
               "library = ctypes.CDLL(sys.argv[1])\n"
               "f = getattr(library, sys.argv[2])\n"
               "number = ctypes.c_int()\n"
               "f.restype = ctypes.c_size_t\n"
               "print((f(ctypes.byref(number)), number.value)[1] if sys.argv[2].startswith('nccl') else f())\n")
    try:
        done = subprocess.run(["python3", "-c", program, path, function], capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return "opening it takes more than 30 s"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["cannot be opened"])[-1]
    return int(done.stdout)


def has_gpu():
    """Says whether the driver lists a GPU. Returns (yes or no, the reason if no)."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False, "libcuda.so.1, the driver's library, is not here"
    code = driver.cuInit(0)
    count = ctypes.c_int()
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code != 0:
        return False, f"the driver answers with error {code}"
    return count.value > 0, "the driver lists no GPU"


def query_gpu(*fields):
    """Returns fields of nvidia-smi's first GPU. A field that nvidia-smi does not know is missing."""
    if not shutil.which("nvidia-smi"):
        return {}
    command = ["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits", "-i", "0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return {}
    if done.returncode == 0:
        return dict(zip(fields, [value.strip() for value in done.stdout.strip().split(",")]))
    if len(fields) == 1:
        return {}
    # One unknown field makes nvidia-smi refuse all of them.
    return {name: value for field in fields for name, value in query_gpu(field).items()}


def library_folders():
    """Returns the folders of NVIDIA's libraries as $WEIR_CUDA_LIBRARIES lists them."""
    found = [os.path.dirname(paths[0]) for paths in map(find_library, LIBRARIES) if paths]
    return ":".join(dict.fromkeys(found))


def tools():
    """Returns the paths of NVIDIA's tools, or None for those that are missing."""
    found = {}
    for name in ["nvcc", "ncu", "nsys", "compute-sanitizer", "cuobjdump", "nvidia-smi"]:
        beside = [path for path in [f"/usr/local/cuda/bin/{name}"] + glob.glob(f"/opt/nvidia/*/*/{name}")
                  if os.path.exists(path)]
        found[name] = shutil.which(name) or (beside[0] if beside else None)
    return found


def packages():
    """Returns versions of the Python packages that the check compares with or finds libraries in."""
    import importlib.metadata as metadata

    wanted = ["torch", "triton", "numpy", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", "nvidia-cublas",
              "nvidia-cudnn-frontend", "jax", "transformers"]
    found = {}
    for name in wanted:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found


def host():
    """Returns facts of the host: system, processors, memory, C library."""
    facts = {"system": platform.platform(), "libc": " ".join(platform.libc_ver()), "python": platform.python_version(),
             "cores": os.cpu_count()}
    with open("/proc/meminfo", encoding="ascii") as lines:
        facts["memory_kib"] = int(next(lines).split()[1])
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                facts["processor"] = line.split(":", 1)[1].strip()
                break
    shm = os.statvfs("/dev/shm")
    facts["shared_memory_bytes"] = shm.f_bsize * shm.f_bavail
    return facts
