"""precompiled_header: a header that the compiler parses once for all sources that start from it."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )

    # GCC looks for NAME.h.gch beside the NAME.h that -include names. GCC writes other bytes into NAME.h.gch each time, so
    # sources depend on NAME.h alone: a cache of compiled files would otherwise fit no source of another checkout. One
    # action makes both files, so NAME.h.gch is there wherever NAME.h is.
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    compiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    options = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = compiled.path,
        user_compile_flags = options + ["-iquote", ".", "-x", "c++-header"],
        use_pic = True,
    )
    compiler = cc_common.get_tool_for_action(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
    )
    command_line = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    )
    ctx.actions.run_shell(
        command = 'cp -f "$1" "$2" && shift 2 && exec "$@"',
        arguments = [ctx.file.src.path, header.path, compiler] + command_line,
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset([ctx.file.src] + ctx.files.hdrs, transitive = [toolchain.all_files]),
        outputs = [header, compiled],
        mnemonic = "WeirPrecompile",
        progress_message = "Precompiling %s" % ctx.label,
    )
    context = cc_common.create_compilation_context(headers = depset([header] + ctx.files.hdrs))
    return [DefaultInfo(files = depset([compiled])), CcInfo(compilation_context = context)]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "src": attr.label(allow_single_file = [".h"], mandatory = True),
        "hdrs": attr.label_list(allow_files = [".h"], doc = "The headers of this repository that src includes."),
        "copts": attr.string_list(doc = "The options of the sources that start from the header; others do not fit it."),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    doc = "A source starts from the header by the option `-include PACKAGE/NAME.h`. A change of any option or " +
          "macro that the compiler deems to matter is an error of -Winvalid-pch, not a slow build.",
)
