// Runs the command line inside a test. Thread rule: one thread, since the environment changes.
#pragma once

#include <stdlib.h>

#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tools/cli/cli.h"

namespace weir::cli {

struct Outcome {
  int code;
  std::string out, err;
};

// Joins lines that were broken to fit the width.
inline std::string Unwrapped(const std::string& text) {
  std::string unwrapped;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n' && i + 1 < text.size() && text[i + 1] == ' ') {
      i = text.find_first_not_of(' ', i + 1) - 1;
      unwrapped.push_back(' ');
    } else {
      unwrapped.push_back(text[i]);
    }
  }
  return unwrapped;
}

// Returns the results of `weir ARGS`, with errors without the breaks of their lines. The home
// folder keeps no costs of this machine.
inline Outcome Weir(const std::vector<std::string>& args) {
  ::setenv("HOME", ::testing::TempDir().c_str(), 1);
  std::ostringstream out, err;
  const int code = RunCli(args, out, err);
  return {code, out.str(), Unwrapped(err.str())};
}

}  // namespace weir::cli
