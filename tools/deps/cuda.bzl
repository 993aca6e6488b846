"""weir_cuda_library: kernels for CUDA, and the same sources for the emulation of CUDA on the host."""

load("@cuda//:defs.bzl", "CUDA_PRESENT", "NVCC", "NVCC_VERSION")
load("//tools/deps:cc.bzl", "weir_cc_library")

_NVCC_FLAGS = [
    "-std=c++20",
    "-O3",
    # Machine code for H100 and H200, and code that the driver compiles for any other GPU since A100.
    "-gencode=arch=compute_90a,code=sm_90a",
    "-gencode=arch=compute_80,code=compute_80",
    "-ccbin=/usr/bin/gcc",
    "-Xcompiler=-fPIC,-Wall,-Wextra,-Wno-unused-parameter,-ffp-contract=off",
    "-Werror=all-warnings",
    "-Xptxas=-v",
]

# $1 is where ptxas reports; the rest is the command. Times would make every report a new one.
_COMPILE = """
report="$1"; shift
if ! "$@" > "$report" 2>&1; then cat "$report" >&2; exit 1; fi
sed -i '/Compile time/d' "$report"
echo "$WEIR_NVCC_VERSION" >> "$report"
"""

def _nvcc_objects_impl(ctx):
    dependencies = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    inputs = depset(ctx.files.hdrs, transitive = [dependencies.compilation_context.headers])
    objects = []
    reports = []
    for source in ctx.files.srcs:
        stem = "%s/%s" % (ctx.label.name, source.basename[:-len(".cu")])
        object = ctx.actions.declare_file(stem + ".pic.o")
        report = ctx.actions.declare_file(stem + ".ptxas.txt")
        arguments = ctx.actions.args()
        arguments.add(report)
        arguments.add(NVCC)
        arguments.add_all(_NVCC_FLAGS)
        arguments.add("-I.")
        arguments.add("-c", source)
        arguments.add("-o", object)
        ctx.actions.run_shell(
            command = _COMPILE,
            arguments = [arguments],
            inputs = depset([source], transitive = [inputs]),
            outputs = [object, report],
            env = {"PATH": "/usr/bin:/bin", "TMPDIR": "/tmp", "WEIR_NVCC_VERSION": NVCC_VERSION},
            mnemonic = "WeirNvcc",
            progress_message = "Compiling %s for CUDA" % source.short_path,
        )
        objects.append(object)
        reports.append(report)
    return [
        DefaultInfo(files = depset(objects)),
        OutputGroupInfo(reports = depset(reports)),
    ]

_nvcc_objects = rule(
    implementation = _nvcc_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"], mandatory = True),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
    },
    doc = "One object of position-independent code per source, and what ptxas says of its kernels.",
)

def weir_cuda_library(
        name,
        cu_srcs,
        cc_srcs,
        hdrs,
        deps,
        visibility,
        reports_visibility,
        cuda_deps = [],
        emulated_deps = []):
    """Makes two libraries of kernels that register themselves.

    :name           the .cu by nvcc and the .cc by the compiler of the host: the kind of device "cuda".
                    Empty on a machine without the CUDA toolkit.
    :name_emulated  all of them by the compiler of the host with -DWEIR_CUDA_EMULATED: the kind "cuda-emulated".

    :name_ptxas_reports are the files in which ptxas tells of registers and spills; none without the toolkit.

    Args:
      name: of the library.
      cu_srcs: kernels and their launches. They include no header of the system's libraries.
      cc_srcs: what calls the launches.
      hdrs: headers of both, .h and .cuh.
      deps: of both libraries.
      visibility: of both libraries.
      reports_visibility: of :name_ptxas_reports.
      cuda_deps: of :name alone.
      emulated_deps: of :name_emulated alone.
    """
    objects = []
    reports = []
    if CUDA_PRESENT:
        _nvcc_objects(
            name = name + "_nvcc",
            srcs = cu_srcs,
            hdrs = hdrs,
            deps = deps + cuda_deps,
        )
        native.filegroup(
            name = name + "_reports",
            srcs = [":%s_nvcc" % name],
            output_group = "reports",
        )
        objects.append(":%s_nvcc" % name)
        reports.append(":%s_reports" % name)
    native.filegroup(
        name = name + "_ptxas_reports",
        srcs = reports,
        visibility = reports_visibility,
    )
    weir_cc_library(
        name = name,
        srcs = cc_srcs + objects if CUDA_PRESENT else [],
        hdrs = hdrs if CUDA_PRESENT else [],
        visibility = visibility,
        deps = deps + cuda_deps if CUDA_PRESENT else [],
        alwayslink = True,
    )

    # Bazel's C++ rules do not know the suffix .cu.
    wrappers = []
    for source in cu_srcs:
        stem = source[:-len(".cu")]
        native.genrule(
            name = "%s_emulated_%s" % (name, stem),
            outs = ["%s_emulated/%s.cc" % (name, stem)],
            cmd = "echo '#include \"%s/%s\"' > $@" % (native.package_name(), source),
        )
        wrappers.append("%s_emulated/%s.cc" % (name, stem))
    weir_cc_library(
        name = name + "_emulated",
        srcs = cc_srcs + wrappers,
        hdrs = hdrs,
        # `#pragma unroll` is nvcc's.
        copts = ["-Wno-unknown-pragmas"],
        local_defines = ["WEIR_CUDA_EMULATED"],
        textual_hdrs = cu_srcs,
        visibility = visibility,
        deps = deps + emulated_deps,
        alwayslink = True,
    )
