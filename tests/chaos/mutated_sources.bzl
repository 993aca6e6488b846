"""Copies of C++ sources with every mutant of mutant_table.py in them, behind a switch."""

def _mutated_sources_impl(ctx):
    sources = ctx.files.srcs + ctx.files.tests
    folder = ctx.label.name
    copies = [ctx.actions.declare_file(folder + "/" + source.short_path) for source in ctx.files.srcs]
    tests = [ctx.actions.declare_file(folder + "/" + source.short_path) for source in ctx.files.tests]
    catalogue = ctx.actions.declare_file(folder + "/mutant_catalogue.cc")
    ctx.actions.run(
        executable = ctx.executable._mutate_sources,
        arguments = [ctx.bin_dir.path, ctx.label.package + "/" + folder] + [source.path for source in sources],
        inputs = sources,
        outputs = copies + tests + [catalogue],
        mnemonic = "MutateSources",
        progress_message = "Mutating %d sources" % len(sources),
    )
    return [
        DefaultInfo(files = depset(copies + [catalogue])),
        OutputGroupInfo(**{test.basename[:-len(".cc")]: depset([test]) for test in tests}),
    ]

mutated_sources = rule(
    implementation = _mutated_sources_impl,
    doc = """Copies sources into a folder with the name of the target. Copies include each other there.

All copies of one program must come from one target, and the program may link no library that has one of the
originals: a function would have two definitions. The copy of each of `tests` is an output group with
the name of the test; the other outputs are the copies of `srcs` and the catalogue as C++.""",
    attrs = {
        "srcs": attr.label_list(
            allow_files = [".cc", ".h"],
            doc = "Sources that have mutants, and all that include them.",
        ),
        "tests": attr.label_list(
            allow_files = [".cc"],
            doc = "Sources of tests that run on the copies.",
        ),
        "_mutate_sources": attr.label(
            default = "//tests/chaos:mutate_sources",
            executable = True,
            cfg = "exec",
        ),
    },
)
