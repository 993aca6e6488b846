"""C++ rules of Weir: the native rules with the house's compiler options and precompiled headers."""

load("//tools/deps:options.bzl", "TEST_COPTS", "WEIR_COPTS", "plain_or_instrumented")

def _start_from(name, copts):
    """The options and dependencies of sources that start from a precompiled header of //tools/deps/precompiled."""
    if copts:
        return [], []  # A source with options of its own does not fit the header.
    return (
        plain_or_instrumented([
            "-Winvalid-pch",
            # With a precompiled header GCC 12 takes some moves of strings for copies beyond their ends.
            "-Wno-array-bounds",
            "-Wno-stringop-overflow",
            "-Wno-stringop-overread",
            "-include",
            "tools/deps/precompiled/%s.h" % name,
        ], []),
        plain_or_instrumented(["//tools/deps/precompiled:" + name], []),
    )

def weir_cc_library(name, copts = [], deps = [], **kwargs):
    """A cc_library. Set alwayslink = True where a registration must survive the link."""
    start_copts, start_deps = _start_from("library", copts)
    native.cc_library(
        name = name,
        copts = WEIR_COPTS + copts + start_copts,
        deps = deps + start_deps,
        **kwargs
    )

# The chosen sanitizer needs these targets linked in; a plain build needs none.
_HOOKS = ["//tools/deps/sanitizer:hooks"]

def weir_cc_binary(name, copts = [], deps = [], **kwargs):
    """A cc_binary, linked statically with Weir's own code and dynamically with the system's."""
    start_copts, start_deps = _start_from("library", copts)
    native.cc_binary(
        name = name,
        copts = WEIR_COPTS + copts + start_copts,
        deps = deps + start_deps + _HOOKS,
        **kwargs
    )

def weir_cc_test(name, copts = [], deps = [], size = "small", **kwargs):
    """A cc_test over GoogleTest, which brings main().

    Tags: `slow` (left out by tools/test --fast and the sanitizers), `exclusive` (runs alone),
    `no_asan`, `no_ubsan`, `no_tsan` (left out under that sanitizer; say why beside the tag).
    """
    start_copts, start_deps = _start_from("test", copts)
    native.cc_test(
        name = name,
        size = size,
        copts = TEST_COPTS + copts + start_copts,
        deps = deps + start_deps + ["@system//:gtest"] + _HOOKS,
        **kwargs
    )

def weir_cc_fuzz_test(name, corpus = [], args = [], copts = [], deps = [], size = "small", tags = [], **kwargs):
    """A fuzz target: one source that defines LLVMFuzzerTestOneInput.

    In a plain build it is a test that replays `corpus` and then a fixed number of seeded mutations of it
    (args = ["--mutations=N"] changes how many). Built with --config=fuzz it is a libFuzzer program:
    bazel build --config=fuzz //tests/fuzz:plan_fuzz && .bazel/fuzz-bin/tests/fuzz/plan_fuzz NEW_DIR KEPT_DIR

    Args:
      name: the target, by custom x_fuzz.
      corpus: kept inputs (a glob), former crashes included.
      args: passed to the replayer.
      copts: as in cc_test.
      deps: as in cc_test.
      size: as in cc_test.
      tags: as in cc_test.
      **kwargs: passed to the cc_test.
    """
    native.cc_test(
        name = name,
        size = size,
        copts = TEST_COPTS + copts,
        data = corpus,
        args = args + ["$(location %s)" % file for file in corpus],
        tags = tags + ["fuzz"],
        deps = deps + ["//tools/deps/fuzz:main"] + _HOOKS,
        **kwargs
    )
