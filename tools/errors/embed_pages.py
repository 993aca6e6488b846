"""Writes C++ that holds the pages of docs/errors. Usage: embed_pages.py PAGE... > embedded_pages.cc"""

import os
import re
import sys

from tools.deps.cpp_literal import literal


def main(paths):
    print('#include "tools/errors/error_pages.h"\n\nnamespace weir::errors {\n')
    print("const std::vector<ErrorPage>& ErrorPages() {\n"
          "  static const std::vector<ErrorPage>* const kPages = new std::vector<ErrorPage>{")
    for path in sorted(paths, key=os.path.basename):
        code = os.path.splitext(os.path.basename(path))[0]
        with open(path, encoding="utf-8") as file:
            title, body = file.read().split("\n", 1)
        match = re.fullmatch(rf"# {code}: (.+)", title)
        if match is None:
            sys.exit(f"{path}: expected a first line `# {code}: TITLE`; found `{title}`")
        print(f'      {{"{code}", {literal(match.group(1))}, {literal(body.strip())}}},')
    print("  };\n  return *kPages;\n}\n\n}  // namespace weir::errors")


if __name__ == "__main__":
    main(sys.argv[1:])
