"""Defines which folder may include which. Every rule takes a SourceTree and returns the violations as lines of text.

The list of violations is empty when all is well. The folders are ordered like this:

    proto < runtime/base < sbp < ops/defs < compiler < tools
    proto < runtime/*    < ops/kernels    < actors   < tools
"""

import posixpath
import re

from tests.layering.source_tree import includes_of

_COMPILE_TIME = ["proto", "runtime/base", "sbp", "ops/defs", "compiler"]
_RUN_TIME = ["proto", "runtime", "ops/kernels", "actors"]

# ALLOWED maps each part to the parts that it may include, with itself. The most specific prefix of a path decides.
ALLOWED = {
    "proto": ["proto"],
    "runtime/base": ["proto", "runtime/base"],
    "sbp": _COMPILE_TIME[:3],
    "ops/defs": _COMPILE_TIME[:4],
    "compiler": _COMPILE_TIME[:5],
    "runtime": _RUN_TIME[:2],
    "ops/kernels": _RUN_TIME[:3],
    "actors": _RUN_TIME[:4],
    # ops/testing compares each op's meaning with its kernels, so this one part of ops sees both sides.
    "ops/testing": ["proto", "runtime", "sbp", "ops"],
    "tools": ["proto", "runtime", "sbp", "ops", "compiler", "actors", "tools"],
    "tests": ["proto", "runtime", "sbp", "ops", "compiler", "actors", "tools", "tests"],
}
FIRST_PARTY = ["proto", "runtime", "sbp", "ops", "compiler", "actors", "tools", "tests", "docs"]

# An entry has a library, its headers and the places that may include them. Benchmarks of the libraries are exempt.
LIBRARY_HOMES = [
    ("CAF", r"caf/", r"actors/engine/"),
    ("UCX", r"(ucp|uct|ucs|ucm)/", r"runtime/transport/ucx_"),
    ("cuBLAS", r"cublas", r"ops/kernels/cuda/cublaslt_library"),
    ("cuDNN", r"cudnn", r"ops/kernels/cuda/cudnn_"),
    ("CUDA", r"(cuda|curand|cusparse|cusolver|cufft|nvrtc|nvml|nvToolsExt|nvtx3?|cub/|thrust/"
     r"|cooperative_groups)", r".*cuda"),
    ("NCCL", r"nccl", r"runtime/collective/nccl_"),
    ("oneDNN", r"(oneapi/dnnl/|dnnl)", r"(ops/kernels/cpu/|runtime/device/cpu_)"),
    ("Highway", r"hwy/", r"(ops/kernels/cpu/|runtime/device/cpu_)"),
    ("gRPC", r"(grpc|grpcpp|grpc\+\+)/", r"runtime/control/"),
    ("CLI11", r"CLI/", r"tools/"),
    ("libseccomp", r"seccomp", r"tools/sandbox/"),
    ("cpp-httplib", r"httplib\.h", r"tools/view/view_server"),
    ("TBB", r"(tbb|oneapi/tbb)(/|\.h)", r"(tests|tools)/bench/"),
]
_LIBRARY_BENCHES = re.compile(r"(tests|tools)/bench/")

# Test libraries stay in tests, in benchmarks and in the suites that tests and benchmarks share.
_TEST_LIBRARY = re.compile(r"(gtest|gmock|benchmark)/")
_TEST_FILE = re.compile(r"(_test|_benchmark|_fuzz|_conformance|conformance_suite|_testing)\.(cc|cu|h)$"
                        r"|(^|/)(testing|tests|bench)/|^tools/deps/precompiled/test_headers\.h$")

# The actor protocol never blocks, reads a clock or draws a random number (docs/ARCHITECTURE.md, "The actor protocol").
_PURE = "actors/protocol/"
_IMPURE = re.compile(r"(thread|mutex|shared_mutex|condition_variable|future|chrono|ctime|time\.h|random|iostream"
                     r"|fstream|semaphore|latch|barrier|stop_token|unistd\.h|sys/.*|absl/time/.*"
                     r"|absl/synchronization/.*|absl/random/.*"
                     r"|runtime/base/clock\.h|runtime/(?!base/).*)$")

# The compiler reads the message of a job once, at its edge. A search tries other messages. Passes read the settings that the edge made of it.
_JOB_MESSAGE = "proto/job.pb.h"
_READERS_OF_THE_JOB = re.compile(r"compiler/(compile\.(h|cc)$|job/|dims/|search/)")


def part_of(path):
    """Returns the entry of ALLOWED that governs a path, or None for a path outside the house."""
    parts = [part for part in ALLOWED if path == part or path.startswith(part + "/")]
    return max(parts, key=len) if parts else None


def _is_under(path, prefixes):
    return any(path.startswith(prefix + "/") for prefix in prefixes)


def check_direction(tree):
    """Checks that includes point one way only."""
    violations = []
    for path, text in tree.cxx():
        part = part_of(path)
        if part is None:
            violations.append(f"{path}: lies in no folder of the house ({', '.join(ALLOWED)})")
            continue
        for line, _, target in includes_of(text):
            if target.split("/")[0] in FIRST_PARTY and "/" in target and not _is_under(target, ALLOWED[part]):
                violations.append(f"{path}:{line}: {part} may not include {target}; it sees {', '.join(ALLOWED[part])}")
    for path, text in tree.with_suffix(".proto"):
        if not path.startswith(("proto/", "tests/")):
            violations.append(f"{path}: schemas live in proto/")
        for match in re.finditer(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"', text, re.MULTILINE):
            if not match.group(1).startswith(("proto/", "google/protobuf/")):
                violations.append(f"{path}: imports {match.group(1)}; a schema sees proto/ and google/protobuf/")
    return violations


def check_libraries(tree):
    """Checks that each system library is included in its home only."""
    violations = []
    for path, text in tree.cxx():
        for line, _, target in includes_of(text):
            if target.split("/")[0] in FIRST_PARTY:
                continue
            for library, headers, home in LIBRARY_HOMES:
                if re.match(headers, target) and not re.match(home, path) and not _LIBRARY_BENCHES.match(path):
                    violations.append(f"{path}:{line}: {library} ({target}) may only be included under {home}")
            if _TEST_LIBRARY.match(target) and not _TEST_FILE.search(path):
                violations.append(f"{path}:{line}: {target} outside a test, benchmark, fuzz or conformance file")
    return violations


def check_protocol_is_pure(tree):
    """Checks that the actor protocol includes nothing that blocks, reads a clock or draws random numbers."""
    return [
        f"{path}:{line}: the protocol is pure and may not include {target}" for path, text in tree.cxx()
        if path.startswith(_PURE) and not _TEST_FILE.search(path) for line, _, target in includes_of(text)
        if _IMPURE.match(target)
    ]


def check_job_is_read_at_the_edge(tree):
    """Checks that compiler/compile, compiler/job, compiler/dims and compiler/search alone know the message of a job."""
    return [
        f"{path}:{line}: compiler/job reads {target} for all passes, into compiler/ir/job_settings.h"
        for path, text in tree.cxx()
        if path.startswith("compiler/") and not _READERS_OF_THE_JOB.match(path) and not _TEST_FILE.search(path)
        for line, _, target in includes_of(text) if target == _JOB_MESSAGE
    ]


def check_paths(tree):
    """Checks that a first-party include counts from the root and exists. A source must include its own header first."""
    violations = []
    for path, text in tree.cxx():
        includes = includes_of(text)
        for line, quote, target in includes:
            beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if target.split("/")[0] in FIRST_PARTY and "/" in target:
                schema = re.sub(r"(\.grpc)?\.pb\.h$", ".proto", target)
                if target not in tree.paths and schema not in tree.paths:
                    violations.append(f"{path}:{line}: {target} does not exist")
            elif quote == '"' and beside in tree.paths:
                violations.append(f"{path}:{line}: include {beside} by its path from the root")
        own = re.sub(r"\.(cc|cu)$", ".h", path)
        if own != path and own in tree.paths and includes and includes[0][2] != own:
            violations.append(f"{path}:{includes[0][0]}: includes its own header {own} first, "
                              "which shows that it stands alone")
    return violations


def _group_of(path):
    """Returns the unit among which includes may not form a cycle: the first two folders, such as compiler/ir."""
    return "/".join(path.split("/")[:-1][:2])


def check_cycles(tree):
    """Checks that neither files nor folders have include cycles. Tests may include anything below them."""
    files = {}
    groups = {}
    for path, text in tree.cxx():
        if _TEST_FILE.search(path):
            continue
        targets = [target for _, _, target in includes_of(text) if target in tree.paths]
        files[path] = targets
        for target in targets:
            if _group_of(target) != _group_of(path):
                groups.setdefault(_group_of(path), []).append(_group_of(target))
    violations = []
    for what, graph in (("files", files), ("folders", groups)):
        cycle = find_cycle(graph)
        if cycle:
            violations.append(f"include cycle among {what}: " + " -> ".join(cycle))
    return violations


def find_cycle(graph):
    """Returns one cycle of a {node: [node]} graph, as a list that starts and ends with the same node, or None."""
    state = {}
    for start in sorted(graph):
        if start in state:
            continue
        path = [start]
        pending = [iter(sorted(set(graph.get(start, []))))]
        state[start] = "open"
        while path:
            target = next(pending[-1], None)
            if target is None:
                state[path.pop()] = "done"
                pending.pop()
            elif state.get(target) == "open":
                return path[path.index(target):] + [target]
            elif target not in state:
                state[target] = "open"
                path.append(target)
                pending.append(iter(sorted(set(graph.get(target, [])))))
    return None


INCLUDE_RULES = [check_direction, check_libraries, check_protocol_is_pure, check_job_is_read_at_the_edge,
                 check_paths, check_cycles]
