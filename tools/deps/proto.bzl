"""weir_proto_library: .proto files to a cc_library through the system's protoc.

Bazel's own proto rules would build a compiler from source; these call /usr/bin/protoc. Paths count from the
repository root, on both sides: `import "proto/graph.proto"` and `#include "proto/graph.pb.h"`.
"""

WeirProtoInfo = provider(
    doc = "What a .proto file needs beside it to be compiled.",
    fields = {"sources": "depset of .proto files, imports included"},
)

_WELL_KNOWN_IMPORTS = "/usr/include"

def _outputs_of(path, suffixes):
    return [path[:-len(".proto")] + suffix for suffix in suffixes]

def _weir_proto_sources_impl(ctx):
    imports = depset(transitive = [dep[WeirProtoInfo].sources for dep in ctx.attr.deps])
    arguments = ctx.actions.args()
    arguments.add("-I.")
    arguments.add("-I" + _WELL_KNOWN_IMPORTS)
    arguments.add("--cpp_out=" + ctx.bin_dir.path)
    if ctx.attr.grpc:
        arguments.add("--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin")
        arguments.add("--grpc_out=" + ctx.bin_dir.path)
    arguments.add_all(ctx.files.srcs)
    ctx.actions.run(
        executable = "/usr/bin/protoc",
        arguments = [arguments],
        inputs = depset(ctx.files.srcs, transitive = [imports]),
        outputs = ctx.outputs.outs,
        mnemonic = "WeirProtoc",
        progress_message = "Compiling protobuf schemas of %s" % ctx.label,
    )
    return [
        WeirProtoInfo(sources = depset(ctx.files.srcs, transitive = [imports])),
        DefaultInfo(files = depset(ctx.outputs.outs)),
    ]

_weir_proto_sources = rule(
    implementation = _weir_proto_sources_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".proto"], mandatory = True),
        "outs": attr.output_list(mandatory = True),
        "deps": attr.label_list(providers = [WeirProtoInfo]),
        "grpc": attr.bool(default = False),
    },
    output_to_genfiles = False,
)

def _sources_label(label):
    """The label of the generated sources of a weir_proto_library, given the library's own label."""
    if ":" in label:
        return label + "_sources"
    return label + ":" + label.split("/")[-1] + "_sources"

def weir_proto_library(name, srcs, deps = [], grpc = False, **kwargs):
    """Compiles .proto files into a cc_library.

    Args:
      name: the cc_library to depend on.
      srcs: .proto files of this package.
      deps: other weir_proto_library targets whose files these import. Google's well-known types need none.
      grpc: also generate the service stubs (foo.grpc.pb.h).
      **kwargs: passed to the cc_library (visibility, testonly, tags).
    """
    headers = []
    sources = []
    for src in srcs:
        headers += _outputs_of(src, [".pb.h"] + ([".grpc.pb.h"] if grpc else []))
        sources += _outputs_of(src, [".pb.cc"] + ([".grpc.pb.cc"] if grpc else []))
    _weir_proto_sources(
        name = name + "_sources",
        srcs = srcs,
        outs = headers + sources,
        deps = [_sources_label(dep) for dep in deps],
        grpc = grpc,
        **kwargs
    )
    native.cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = ["-w"],
        deps = deps + ["@system//:protobuf"] + (["@system//:grpc"] if grpc else []),
        **kwargs
    )
