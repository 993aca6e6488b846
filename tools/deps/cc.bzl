"""C++ rules of Weir: the native rules with the house's compiler options.

Language, optimisation and sanitizers are set for the whole build in .bazelrc; only warnings are set here,
so that generated code stays quiet.
"""

WEIR_COPTS = [
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
]

def weir_cc_library(name, copts = [], **kwargs):
    """A cc_library. Set alwayslink = True where a registration must survive the link."""
    native.cc_library(name = name, copts = WEIR_COPTS + copts, **kwargs)

def weir_cc_binary(name, copts = [], **kwargs):
    """A cc_binary, linked statically with Weir's own code and dynamically with the system's."""
    native.cc_binary(name = name, copts = WEIR_COPTS + copts, **kwargs)

def weir_cc_test(name, copts = [], deps = [], size = "small", **kwargs):
    """A cc_test over GoogleTest, which brings main().

    Tags: `slow` (left out by tools/test --fast and the sanitizers), `exclusive` (runs alone),
    `no_asan`, `no_ubsan`, `no_tsan` (left out under that sanitizer; say why beside the tag).
    """
    native.cc_test(
        name = name,
        size = size,
        copts = WEIR_COPTS + copts,
        deps = deps + ["@system//:gtest"],
        **kwargs
    )
