"""Checks that each type has one definition.

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


DEFINITION_RULES = [check_one_definition]
