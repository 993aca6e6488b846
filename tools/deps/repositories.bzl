"""Every external repository of the workspace. All are local: nothing here may need a network.

Bazel asks for `rules_cc`, `rules_java`, `rules_proto`, `platforms`, `bazel_skylib` and
`remote_coverage_tools` by name even in a pure C++ workspace. Debian packages four of them; the other two
are shims in this folder.
"""

load(":cuda_repository.bzl", "cuda_repository")

def weir_repositories():
    """Declares the system libraries, the CUDA toolkit, Debian's Bazel rules and the two shims."""

    # The libraries Weir is built on: one cc_library each, see system/BUILD.
    native.local_repository(name = "system", path = "tools/deps/system")

    # The CUDA toolkit, if there is one.
    cuda_repository(name = "cuda")

    # Shims.
    native.local_repository(name = "rules_cc", path = "tools/deps/rules_cc")
    native.local_repository(name = "remote_coverage_tools", path = "tools/deps/remote_coverage_tools")

    # Debian packages bazel-platforms, bazel-skylib, bazel-rules-java, bazel-rules-proto.
    native.local_repository(name = "platforms", path = "/usr/share/bazel/tools/platforms")
    native.local_repository(name = "bazel_skylib", path = "/usr/share/bazel/tools/skylib")
    native.local_repository(name = "rules_java", path = "/usr/share/bazel/rules/java")
    native.local_repository(name = "rules_proto", path = "/usr/share/bazel/rules/proto")
