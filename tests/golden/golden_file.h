// Golden files: what a test produced when a person last looked at it, beside its input.
//
// ExpectGolden compares; run by tests/golden/update (WEIR_UPDATE_GOLDEN names the root of
// the checkout) it rewrites the file instead, and the change is reviewed as a diff. Not for
// numbers that depend on the machine.
// Thread rule: reads and writes files; one thread.
#pragma once

#include <string>
#include <vector>

namespace weir {

// The text of `path`, counted from the root; "" and a failure of the test if there is none.
std::string ReadGoldenInput(const std::string& path);

// Fails the test, with the first lines that differ and the command that accepts the change.
void ExpectGolden(const std::string& path, const std::string& text);

// Names in `folder` that end in `suffix`, without it, in order; folders too if `suffix` is "".
std::vector<std::string> NamesIn(const std::string& folder, const std::string& suffix);

// The first difference of two texts with lines around it, "" if they are equal.
std::string FirstDifference(const std::string& expected, const std::string& found);

}  // namespace weir
