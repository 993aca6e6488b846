"""Each type has one definition. Two types of one name in one namespace are an error that no compiler and no linker must report:
the program then uses either of them in place of the other. Same shape as include_rules: SourceTree in, violations out."""

import re

_NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
_TOKEN = re.compile(r"\bnamespace\s+(?P<opened>[\w:]*)\s*\{"
                    r"|\bnamespace\s*(?P<anonymous>)\{"
                    r"|\b(?:class|struct|union|enum\s+class|enum)\s+(?:alignas\([^)]*\)\s*)?(?P<type>\w+)\s*(?:final\s*)?(?::(?!:)[^{;()]*)?\{"
                    r"|(?P<brace>[{}])")


def types_defined(text):
    """(namespace, name) of the types that a source defines outside functions, other types and anonymous namespaces."""
    found, scopes = [], []  # a scope is the name of a namespace, or None: nothing inside counts
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
    """A type has one definition in its namespace. Types of one source belong into an anonymous namespace."""
    homes = {}
    for path, text in tree.cxx():
        for definition in types_defined(text):
            homes.setdefault(definition, set()).add(path)
    return [f"{space}::{name}: defined in {' and in '.join(sorted(paths))}; give one another name, or hide it in an anonymous namespace"
            for (space, name), paths in sorted(homes.items()) if len(paths) > 1]


DEFINITION_RULES = [check_one_definition]
