"""Runs clang's thread safety analysis over the sources of targets and of all that they are built from.

Each target is an action of its own, so that Bazel repeats the analysis only where a source changed.
"""

_ThreadSafetyInfo = provider(
    doc = "What the analysis found.",
    fields = {"reports": "depset of files: a line of JSON for each source that was analysed (check_sources.py)"},
)

def _own_sources(target, ctx):
    """The sources that belong to the target's own folder; others are analysed where they belong."""
    files = []
    for name in ["srcs", "hdrs"]:
        files += getattr(ctx.rule.files, name, [])
    return [
        file
        for file in files
        if file.is_source and file.owner.package == target.label.package and file.extension in ["cc", "h"]
    ]

def _aspect_impl(target, ctx):
    below = [
        dep[_ThreadSafetyInfo].reports
        for dep in getattr(ctx.rule.attr, "deps", [])
        if _ThreadSafetyInfo in dep
    ]
    sources = _own_sources(target, ctx) if CcInfo in target else []
    if not sources:
        return [_ThreadSafetyInfo(reports = depset(transitive = below))]
    context = target[CcInfo].compilation_context
    report = ctx.actions.declare_file(target.label.name + ".thread_safety")
    arguments = ctx.actions.args()
    arguments.add(ctx.file._check)
    arguments.add("--report", report)
    arguments.add_all(context.quote_includes, before_each = "--include")
    arguments.add_all(context.defines, before_each = "--define")
    arguments.add_all(sources)
    ctx.actions.run(
        executable = "/usr/bin/python3",
        arguments = [arguments],
        inputs = depset(sources + [ctx.file._check], transitive = [context.headers]),
        outputs = [report],
        mnemonic = "ThreadSafety",
        progress_message = "Analysing the locks of %s" % target.label,
        use_default_shell_env = True,
    )
    return [_ThreadSafetyInfo(reports = depset([report], transitive = below))]

_thread_safety_aspect = aspect(
    implementation = _aspect_impl,
    attr_aspects = ["deps"],
    attrs = {
        "_check": attr.label(default = "//tests/thread_safety:check_sources.py", allow_single_file = True),
    },
)

def _report_impl(ctx):
    reports = depset(transitive = [dep[_ThreadSafetyInfo].reports for dep in ctx.attr.deps])
    report = ctx.actions.declare_file(ctx.label.name + ".jsonl")
    arguments = ctx.actions.args()
    arguments.add_all(reports)
    arguments.use_param_file("%s", use_always = True)
    arguments.set_param_file_format("multiline")
    ctx.actions.run_shell(
        command = "xargs cat <\"$1\" >\"%s\"" % report.path,
        arguments = [arguments],
        inputs = reports,
        outputs = [report],
        mnemonic = "ThreadSafetyReport",
    )
    return [DefaultInfo(files = depset([report]), runfiles = ctx.runfiles([report]))]

thread_safety_report = rule(
    doc = "One file with the reports of `deps` and of all below them.",
    implementation = _report_impl,
    attrs = {"deps": attr.label_list(aspects = [_thread_safety_aspect], mandatory = True)},
)
