// Holds the importer to ONNX's own tests. ledger.txt says of each case whether it passes, and why
// not; a case that changes sides fails the test. A passing case gives the expected outputs on one
// device, and each of its operations gives the same in every legal layout on 2 and 4 devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/onnx/suite_case.h"

namespace weir::onnx {
namespace {

namespace fs = std::filesystem;

constexpr char kSuites[] = "/usr/share/libonnx-testdata/data";
constexpr char kLedger[] = "tests/onnx/ledger.txt";

std::map<std::string, std::string> ReadLedger() {
  std::map<std::string, std::string> lines;
  std::ifstream file(kLedger);
  for (std::string line; std::getline(file, line);) {
    const size_t space = line.find(' ');
    if (line.empty() || line[0] == '#' || space == std::string::npos) continue;
    lines[line.substr(0, space)] = line.substr(space + 1);
  }
  return lines;
}

std::vector<std::string> CasesOf(const std::string& suite) {
  std::vector<std::string> cases;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(kSuites) / suite)) {
    if (fs::exists(entry.path() / "model.onnx")) cases.push_back(entry.path().filename().string());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

TEST(Conformance, EveryCaseOfOnnxIsOnItsSideOfTheLedger) {
  if (!fs::exists(kSuites))
    GTEST_SKIP() << "no " << kSuites << ": tools/deps/install installs libonnx-testdata";
  const std::map<std::string, std::string> ledger = ReadLedger();
  std::map<std::string, std::string> found;
  CoveredOperations covered;
  for (const char* suite : {"node", "pytorch-converted", "pytorch-operator", "simple"}) {
    for (const std::string& name : CasesOf(suite)) {
      const std::string key = absl::StrCat(suite, "/", name);
      found[key] = LineOf(RunSuiteCase(absl::StrCat(kSuites, "/", key), &covered));
      const auto known = ledger.find(key);
      if (known == ledger.end()) {
        ADD_FAILURE() << key << " is not in " << kLedger << ": " << found[key];
      } else if (known->second != found[key]) {
        ADD_FAILURE() << key << "\n  is in " << kLedger << " as \"" << known->second
                      << "\"\n  and now \"" << found[key] << "\"";
      }
    }
  }
  for (const auto& [key, line] : ledger) EXPECT_EQ(found.count(key), 1u) << key << " is no case";
  int64_t passes = 0;
  for (const auto& [key, line] : found) passes += absl::StartsWith(line, "pass") ? 1 : 0;
  RecordProperty("passes", static_cast<int>(passes));
  // tests/onnx/update puts these lines into the ledger.
  if (const char* out = std::getenv("WEIR_ONNX_LEDGER"); out != nullptr) {
    std::ofstream file(out);
    for (const auto& [key, line] : found) file << key << " " << line << "\n";
  }
}

}  // namespace
}  // namespace weir::onnx
