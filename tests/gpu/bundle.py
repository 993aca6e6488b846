"""Packs Weir's programs for a machine that has a GPU and neither Bazel nor the libraries that the programs need.

A bundle is one compressed archive, bundle.tar, with

    bin/      programs, stripped
    lib/      the shared libraries that they need, without those that every Linux has (glibc, libstdc++, libgcc)
    run       starts a program of bin/ with the libraries of lib/
"""

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
NAME = "bundle.tar"
LIMIT_BYTES = 40 << 20

# Libraries that stay behind: the other machine has its own, and a second copy of them in a process breaks it.
_LEFT_BEHIND = re.compile(
    r"^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|nsl|anl|BrokenLocale|stdc\+\+|gcc_s|cuda|nvidia-ml))\.so")

_LAUNCHER = """#!/bin/sh
# Starts a program of this folder's bin/ with the libraries of lib/.
here=$(dirname "$(readlink -f "$0")")
program=$1
shift
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/bin/$program" "$@"
"""

FACTS = {"gpu_facts": ["facts.cc", "gpu_facts.cc", "facts_order.cc", "facts_signal.cc", "facts_memory.cc",
                       "facts_kernels.cu"],
         "nccl_facts": ["facts.cc", "nccl_facts.cc"]}


class CannotPack(Exception):
    """The bundle cannot be made. The message says what is missing and how to get it."""


def toolkit():
    """Returns the folder of the CUDA toolkit, or None."""
    for folder in [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]:
        if folder and os.path.exists(os.path.join(folder, "bin", "nvcc")):
            return folder
    return None


def build_facts(program, folder):
    """Compiles one of FACTS with nvcc into `folder`, unless a newer one is there, and returns its path.

    Raises:
      CannotPack: there is no nvcc, or the compiler refuses.
    """
    cuda = toolkit()
    if cuda is None:
        raise CannotPack("expected nvcc in $CUDA_HOME/bin or /usr/local/cuda/bin, found none; install the CUDA toolkit")
    path = os.path.join(folder, program)
    sources = [os.path.join(ROOT, "tests", "gpu", "cuda", source) for source in FACTS[program] + ["facts.h"]]
    if os.path.exists(path) and os.path.getmtime(path) > max(os.path.getmtime(source) for source in sources):
        return path
    command = [os.path.join(cuda, "bin", "nvcc"), "-std=c++20", "-O2", "-gencode=arch=compute_90a,code=sm_90a",
               "-gencode=arch=compute_80,code=compute_80", "-cudart=static", "-I" + ROOT, "-o", path]
    command += [source for source in sources if not source.endswith(".h")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotPack(f"nvcc cannot build {program}: {done.stderr.strip()[-800:]}")
    return path


def needed_libraries(program):
    """Returns the paths of the shared libraries that a program loads and that travel with it.

    Raises:
      CannotPack: a library is missing here, too.
    """
    printed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    missing = re.findall(r"(\S+) => not found", printed)
    if missing:
        raise CannotPack(f"{program} needs {', '.join(missing)}, which this machine lacks; run tools/deps/install")
    return [path for name, path in re.findall(r"(\S+) => (/\S+)", printed) if not _LEFT_BEHIND.match(name)]


def pack(programs, folder, limit_bytes=LIMIT_BYTES):
    """Writes the bundle of these programs into `folder` and returns its path.

    Raises:
      CannotPack: the bundle is larger than `limit_bytes`, or a library of a program is missing.
    """
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name in ["bin", "lib"]:
            os.mkdir(os.path.join(scratch, name))
        libraries = {}
        for program in programs:
            copy = os.path.join(scratch, "bin", os.path.basename(program))
            shutil.copyfile(program, copy)
            os.chmod(copy, 0o755)
            subprocess.run(["strip", copy], check=True)
            for library in needed_libraries(program):
                libraries.setdefault(os.path.basename(library), library)
        for name, library in libraries.items():
            copy = os.path.join(scratch, "lib", name)
            shutil.copyfile(library, copy)
            os.chmod(copy, 0o755)
            subprocess.run(["strip", "--strip-unneeded", copy], check=False, stderr=subprocess.DEVNULL)
        # The second way takes half a minute longer and saves a third.
        path = os.path.join(folder, NAME)
        for mode, level in [("w:gz", {"compresslevel": 3}), ("w:xz", {"preset": 2})]:
            with tarfile.open(path + ".part", mode, **level) as archive:
                for name in ["bin", "lib"]:
                    archive.add(os.path.join(scratch, name), name)
                _add_text(archive, "run", _LAUNCHER, 0o755)
            os.replace(path + ".part", path)
            if os.path.getsize(path) <= limit_bytes:
                break
    if os.path.getsize(path) > limit_bytes:
        raise CannotPack(f"{path} has {os.path.getsize(path) >> 20} MiB, and the limit is {limit_bytes >> 20} MiB; "
                         "it holds too much for the machine with the GPU")
    return path


def _add_text(archive, name, text, mode):
    data = text.encode()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def unpack(folder):
    """Unpacks the bundle in `folder` into a temporary folder, once per bundle, and returns that folder.

    Raises:
      CannotPack: there is no bundle.
    """
    path = os.path.join(folder, NAME)
    if not os.path.exists(path):
        raise CannotPack(f"expected {path}, found none; run `tools/gpu_check prepare` where Weir is built, and bring "
                         "the folder here")
    with open(path, "rb") as data:
        digest = hashlib.sha256(data.read()).hexdigest()[:16]
    home = os.path.join(tempfile.gettempdir(), f"weir-gpu-check-{os.getuid()}-{digest}")
    if not os.path.exists(os.path.join(home, "complete")):
        os.makedirs(home, exist_ok=True)
        with tarfile.open(path) as archive:
            if sys.version_info >= (3, 12):
                archive.extractall(home, filter="data")
            else:
                archive.extractall(home)
        open(os.path.join(home, "complete"), "w").close()
    return home
