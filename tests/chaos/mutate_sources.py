"""Writes the copies of C++ sources that contain the mutants of mutant_table.py, and the catalogue as C++.

    mutate_sources ROOT FOLDER SOURCE...

SOURCE are paths from the root of the tree. The copy of SOURCE is ROOT/FOLDER/SOURCE, and copies include each other as
FOLDER/SOURCE. The catalogue is ROOT/FOLDER/mutant_catalogue.cc.
"""

import os
import sys

from tests.chaos import mutation
from tests.chaos.mutant_table import MUTANTS


def main(arguments):
    root, folder, *paths = arguments
    texts = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            texts[path] = file.read()
    errors = mutation.check_mutants(MUTANTS, texts)
    if errors:
        print("\n".join("tests/chaos/mutant_table.py: " + error for error in errors), file=sys.stderr)
        return 1
    copies = {path: mutation.rewrite(path, texts, MUTANTS, folder) for path in paths}
    copies["mutant_catalogue.cc"] = mutation.catalogue_source(MUTANTS)
    for path, text in copies.items():
        target = os.path.join(root, folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
