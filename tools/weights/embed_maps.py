"""Writes C++ that holds the maps of tools/weights/maps. Usage: embed_maps.py MAP... > embedded_maps.cc"""

import os
import sys

from tools.deps.cpp_literal import literal


def main(paths):
    print('#include "tools/weights/find_weights.h"\n\nnamespace weir::weights {\n')
    print("const std::vector<BuiltInMap>& BuiltInMaps() {\n"
          "  static const std::vector<BuiltInMap>* const kMaps = new std::vector<BuiltInMap>{")
    for path in sorted(paths, key=os.path.basename):
        name = os.path.basename(path).removesuffix(".textproto")
        with open(path, encoding="utf-8") as file:
            print(f'      {{"{name}", {literal(file.read())}}},')
    print("  };\n  return *kMaps;\n}\n\n}  // namespace weir::weights")


if __name__ == "__main__":
    main(sys.argv[1:])
