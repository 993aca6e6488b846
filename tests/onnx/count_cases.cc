// Says of each case in a folder of cases of ONNX whether Weir passes the case, in the words of
// ledger.txt, and counts them. wheel_cases.py makes such a folder of the cases that the package
// onnx of PyPI generates.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/onnx/suite_case.h"

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  if (argc != 2 || !fs::is_directory(argv[1])) {
    std::cerr << "usage: count_cases FOLDER, with a case in each of its folders\n";
    return 2;
  }
  std::vector<fs::path> cases;
  for (const fs::directory_entry& entry : fs::directory_iterator(argv[1])) {
    if (fs::exists(entry.path() / "model.onnx")) cases.push_back(entry.path());
  }
  std::sort(cases.begin(), cases.end());
  int passes = 0;
  weir::onnx::CoveredOperations covered;
  for (const fs::path& path : cases) {
    const std::string line = weir::onnx::LineOf(weir::onnx::RunSuiteCase(path.string(), &covered));
    passes += absl::StartsWith(line, "pass") ? 1 : 0;
    std::cout << path.filename().string() << " " << line << std::endl;
  }
  std::cout << passes << " of " << cases.size() << " cases pass\n";
  return 0;
}
