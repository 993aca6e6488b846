// Golden files: a golden file holds the output of a test when a person last reviewed it, beside the
// test's input.
//
// ExpectGolden compares the output with the file. If tests/golden/update runs the test
// (WEIR_UPDATE_GOLDEN names the root of the checkout), ExpectGolden rewrites the file instead, and
// a person reviews the change as a diff. A golden file holds no numbers that depend on the machine.
// Thread rule: reads and writes files; one thread.
#pragma once

#include <string>
#include <vector>

namespace weir::golden {

// Returns the text of `path`, counted from the root. If there is no such file, the test fails and
// the text is "".
std::string ReadGoldenInput(const std::string& path);

// Compares `text` with the file. A difference fails the test, with the first lines that differ and
// the command that accepts the change.
void ExpectGolden(const std::string& path, const std::string& text);

// Returns the names in `folder` that end in `suffix`, without the suffix, in order. Includes
// folders if `suffix` is "".
std::vector<std::string> NamesIn(const std::string& folder, const std::string& suffix);

// Returns the first difference of two texts with lines around it, or "" if the texts are equal.
std::string FirstDifference(const std::string& expected, const std::string& found);

}  // namespace weir::golden
