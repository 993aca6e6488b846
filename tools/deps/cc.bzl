"""C++ rules of Weir: the native rules with the house's compiler options.

Language, optimisation and sanitizers are set for the whole build in .bazelrc; only warnings are set here,
so that generated code stays quiet.
"""

WEIR_COPTS = [
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
] + select({
    # Instrumented code makes GCC warn of paths that are not there, and clang has other warnings.
    "//tools/deps/sanitizer:asan": [],
    "//tools/deps/sanitizer:ubsan": [],
    "//tools/deps/sanitizer:tsan": [],
    "//tools/deps/sanitizer:fuzz": [],
    "//conditions:default": ["-Werror"],
})

# A test spends its time in the library under test, so its own code is compiled with less optimisation: a cold build
# is shorter.
TEST_COPTS = WEIR_COPTS + ["-O1"]

def weir_cc_library(name, copts = [], **kwargs):
    """A cc_library. Set alwayslink = True where a registration must survive the link."""
    native.cc_library(name = name, copts = WEIR_COPTS + copts, **kwargs)

# The chosen sanitizer needs these targets linked in; a plain build needs none.
_HOOKS = ["//tools/deps/sanitizer:hooks"]

def weir_cc_binary(name, copts = [], deps = [], **kwargs):
    """A cc_binary, linked statically with Weir's own code and dynamically with the system's."""
    native.cc_binary(name = name, copts = WEIR_COPTS + copts, deps = deps + _HOOKS, **kwargs)

def weir_cc_test(name, copts = [], deps = [], size = "small", **kwargs):
    """A cc_test over GoogleTest, which brings main().

    Tags: `slow` (left out by tools/test --fast and the sanitizers), `exclusive` (runs alone),
    `no_asan`, `no_ubsan`, `no_tsan` (left out under that sanitizer; say why beside the tag).
    """
    native.cc_test(
        name = name,
        size = size,
        copts = TEST_COPTS + copts,
        deps = deps + ["@system//:gtest"] + _HOOKS,
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
