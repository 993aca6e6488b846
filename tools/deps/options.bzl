"""The house's options of the C++ compiler. Language, optimisation and sanitizers are set for the whole build in .bazelrc;
only warnings are set here, so that generated code stays quiet.
"""

# The builds that have options of their own: instrumented ones, and fuzzing with clang.
def plain_or_instrumented(plain, instrumented):
    """`plain` in a plain build, `instrumented` in a build with a sanitizer."""
    return select({
        "//tools/deps/sanitizer:asan": instrumented,
        "//tools/deps/sanitizer:ubsan": instrumented,
        "//tools/deps/sanitizer:tsan": instrumented,
        "//tools/deps/sanitizer:fuzz": instrumented,
        "//conditions:default": plain,
    })

WEIR_COPTS = [
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
    # Instrumented code makes GCC warn of paths that are not there, and clang has other warnings.
] + plain_or_instrumented(["-Werror"], [])

# A test spends its time in the library under test, so its own code is compiled with less optimisation: a cold build
# is shorter.
TEST_COPTS = WEIR_COPTS + ["-O1"]
