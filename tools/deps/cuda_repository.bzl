"""The repository of the machine's CUDA toolkit, which may be absent."""

_BUILD = """
package(default_visibility = ["//visibility:public"])

# The headers of the toolkit's libraries.
cc_library(
    name = "headers",
    hdrs = glob(["include/*.h", "include/*.hpp", "include/crt/*"]),
    includes = ["include"],
)

# CUDA's runtime library, static: a program that is linked with it starts without a driver, too.
cc_library(
    name = "cudart",
    srcs = glob(["libcudart_static.a"]),
    linkopts = {linkopts},
    deps = [":headers"],
)

# The headers of cuDNN's frontend. Without them, and without the toolkit, the library is empty.
cc_library(
    name = "cudnn_frontend",
    hdrs = glob(["cudnn_frontend/**"]),
    defines = {frontend_defines},
    includes = ["cudnn_frontend"],
    deps = [":headers"],
)
"""

# The frontend opens cuDNN at run time, and does without its library for JSON.
_FRONTEND_DEFINES = [
    "WEIR_CUDNN_FRONTEND",
    "NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING",
    "CUDNN_FRONTEND_SKIP_JSON_LIB",
]

_DEFS = """
# Whether the machine has a CUDA toolkit. The other values mean nothing without one.
CUDA_PRESENT = {present}
NVCC = {nvcc}
# Everything that nvcc says of its version: a new toolkit compiles all kernels again.
NVCC_VERSION = {version}
"""

def _find_toolkit(ctx):
    """Returns the path of the toolkit, or None."""
    folders = []
    home = ctx.os.environ.get("CUDA_HOME")
    if home == "none":
        return None
    if home:
        folders.append(ctx.path(home))
    folders.append(ctx.path("/usr/local/cuda"))
    nvcc = ctx.which("nvcc")
    if nvcc:
        folders.append(nvcc.realpath.dirname.dirname)
    for folder in folders:
        if folder.get_child("bin").get_child("nvcc").exists:
            return folder
    return None

def _find_frontend(ctx):
    """Returns where tools/deps/install --with-cuda has put the headers of cuDNN's frontend, or None."""
    environment = ctx.os.environ
    cache = environment.get("XDG_CACHE_HOME") or environment.get("HOME", "/root") + "/.cache"
    folder = ctx.path(cache + "/weir/cudnn_frontend/include")
    return folder if folder.get_child("cudnn_frontend.h").exists else None

def _cuda_repository_impl(ctx):
    toolkit = _find_toolkit(ctx)
    nvcc = ""
    version = ""
    if toolkit:
        nvcc = str(toolkit.get_child("bin").get_child("nvcc"))
        said = ctx.execute([nvcc, "--version"])
        if said.return_code != 0:
            fail("%s --version failed: %s. Mend the CUDA toolkit, or remove it." % (nvcc, said.stderr))
        version = said.stdout
        ctx.symlink(toolkit.get_child("include").realpath, "include")
        ctx.symlink(toolkit.get_child("lib64").get_child("libcudart_static.a").realpath, "libcudart_static.a")
    frontend = _find_frontend(ctx) if toolkit else None
    if frontend:
        ctx.symlink(frontend, "cudnn_frontend")
    linkopts = ["-ldl", "-lrt", "-lpthread"] if toolkit else []
    frontend_defines = _FRONTEND_DEFINES if frontend else []
    ctx.file("BUILD", _BUILD.format(linkopts = repr(linkopts), frontend_defines = repr(frontend_defines)))
    ctx.file("defs.bzl", _DEFS.format(present = bool(toolkit), nvcc = repr(nvcc), version = repr(version)))

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    environ = ["CUDA_HOME", "HOME", "XDG_CACHE_HOME"],
    local = True,
    configure = True,
    doc = "The CUDA toolkit in CUDA_HOME, else in /usr/local/cuda, else that of the nvcc in PATH. None if CUDA_HOME is `none`.",
)
