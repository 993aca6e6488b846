"""Checks that each type has one definition, and that names live in the namespace of their folder.

Two types of one name in one namespace are an error that no compiler and no linker must report. The program then uses
either of the two types in place of the other. A rule has the same shape as in include_rules: it takes a SourceTree and
returns violations.
"""

import re

_NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
_TOKEN = re.compile(r"\bnamespace\s+(?P<opened>[\w:]*)\s*\{"
                    r"|\bnamespace\s*(?P<anonymous>)\{"
                    r"|\b(?:class|struct|union|enum\s+class|enum)\s+(?:alignas\([^)]*\)\s*)?"
                    r"(?P<type>\w+)\s*(?:final\s*)?(?::(?!:)[^{;()]*)?\{"
                    r"|(?P<brace>[{}])")


def types_defined(text):
    """Returns (namespace, name) of types that a source defines outside functions, types and anonymous namespaces."""
    found, scopes = [], []  # a scope is the name of a namespace, or None if nothing inside counts
    for token in _TOKEN.finditer(_NOISE.sub(" ", text)):
        if token["brace"] == "}":
            if scopes:
                scopes.pop()
        elif token["opened"]:
            scopes.append(token["opened"])
        elif token["type"]:
            if None not in scopes:
                found.append(("::".join(scopes), token["type"]))
            scopes.append(None)
        else:  # an anonymous namespace, or the brace of something else
            scopes.append(None)
    return found


def check_one_definition(tree):
    """Checks that a type has one definition in its namespace. Types of one source belong in an anonymous namespace."""
    homes = {}
    for path, text in tree.cxx():
        for definition in types_defined(text):
            homes.setdefault(definition, set()).add(path)
    return [f"{space}::{name}: defined in {' and in '.join(sorted(paths))}; give one another name, "
            "or hide it in an anonymous namespace"
            for (space, name), paths in sorted(homes.items()) if len(paths) > 1]


def namespace_of(path):
    """Returns the namespace of the names in a source."""
    folders = path.split("/")[:-1]
    if folders[:2] == ["runtime", "base"]:
        return "weir"  # the words of every folder
    if folders[:2] == ["ops", "kernels"]:
        return "weir::kernels"
    if folders == ["tools"]:
        return "weir::cli"
    if folders[0] in ("runtime", "tools", "tests"):
        return f"weir::{folders[1]}"
    return f"weir::{folders[0]}"


_OPENED = re.compile(r"^namespace (weir[\w:]*) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FORWARD_DECLARATIONS = re.compile(r"(\s*(class|struct) \w+;)*\s*")


def check_namespaces(tree):
    """Checks that a source defines names in the namespace of its folder only, and that messages are in weir.proto."""
    violations = []
    for path, text in tree.cxx():
        if "/" not in path:
            continue
        wanted = namespace_of(path)
        # A header of runtime/base may keep its names apart, in a namespace with the header's name.
        header = "weir::" + path.split("/")[-1].rsplit(".", 1)[0]
        for opened in _OPENED.finditer(_NOISE.sub("", text)):
            is_inside = opened[1] == wanted or (
                opened[1] == header if wanted == "weir" else opened[1].startswith(wanted + "::"))
            if not is_inside and not _FORWARD_DECLARATIONS.fullmatch(opened[2]):
                violations.append(f"{path}: namespace {opened[1]}; the folder's namespace is {wanted}")
    for path, text in tree.with_suffix(".proto"):
        if not re.search(r"^package weir\.proto;", text, re.MULTILINE):
            violations.append(f"{path}: the package of messages is weir.proto")
    return violations


DEFINITION_RULES = [check_one_definition, check_namespaces]
