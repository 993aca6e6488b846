// The registers of every CUDA kernel for sm_90a, as ptxas reports them: tests/golden/cuda/
// kernel_registers.txt. More registers mean fewer threads at a time, so a change of the kernel or
// of a header shows here before anybody measures. No kernel may spill registers to memory.
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <regex>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/golden/golden_file.h"

namespace weir::golden {
namespace {

constexpr char kGolden[] = "tests/golden/cuda/kernel_registers.txt";
constexpr char kSuffix[] = ".ptxas.txt";

struct Kernel {
  std::string registers;
  bool spills = false;
};

struct Reports {
  std::string toolkit;                    // its release
  std::map<std::string, Kernel> kernels;  // by source and name
};

// Returns the folder of the reports: among the test's files, or, where the test runs in the
// checkout, in the output of the build. "" if there is no CUDA toolkit.
std::string FolderOfReports() {
  for (const char* root : {"", "bazel-bin/"}) {
    const std::string folder = absl::StrCat(root, "ops/kernels/cuda/cuda_nvcc");
    if (std::filesystem::exists(folder)) return folder;
  }
  return "";
}

// Returns the name without parameters, without namespaces and without the mark that nvcc gives to
// unnamed ones.
std::string ReadableName(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  std::string name = readable ? readable.get() : mangled;
  // The parameters are the last pair of brackets.
  int depth = 0;
  for (size_t i = name.size(); i-- > 0;) {
    if (name[i] == ')') ++depth;
    if (name[i] == '(' && --depth == 0) {
      name.resize(i);
      break;
    }
  }
  static const std::regex spaces(
      R"(^void |weir::kernels::(cuda::)?|_GLOBAL__N__\w+::|\(anonymous namespace\)::)");
  return std::regex_replace(name, spaces, "");
}

void ReadReport(const std::string& source, const std::string& text, Reports* reports) {
  static const std::regex entry(R"(Compiling entry function '(\w+)' for 'sm_90a')");
  static const std::regex spills(R"((\d+) bytes spill stores, (\d+) bytes spill loads)");
  static const std::regex registers(R"(Used (\d+) registers)");
  static const std::regex release(R"(release .*V([0-9.]+))");
  std::istringstream lines(text);
  std::string line;
  Kernel* kernel = nullptr;
  while (std::getline(lines, line)) {
    std::smatch found;
    if (std::regex_search(line, found, entry)) {
      kernel = &reports->kernels[absl::StrCat(source, ".cu  ", ReadableName(found[1]))];
    } else if (std::regex_search(line, found, release)) {
      reports->toolkit = found[1];
    } else if (kernel && std::regex_search(line, found, spills)) {
      kernel->spills = found[1] != "0" || found[2] != "0";
    } else if (kernel && std::regex_search(line, found, registers)) {
      kernel->registers = found[1];
    }
  }
}

Reports ReadReports(const std::string& folder) {
  Reports reports;
  for (const std::string& source : NamesIn(folder, kSuffix))
    ReadReport(source, ReadGoldenInput(absl::StrCat(folder, "/", source, kSuffix)), &reports);
  return reports;
}

class KernelRegisters : public testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = FolderOfReports();
    if (folder.empty())
      GTEST_SKIP() << "SKIPPED: there is no CUDA toolkit, so no kernel is compiled";
    reports_ = ReadReports(folder);
    ASSERT_FALSE(reports_.kernels.empty()) << "no kernel in the reports of " << folder;
  }
  Reports reports_;
};

TEST_F(KernelRegisters, NoKernelSpills) {
  for (const auto& [name, kernel] : reports_.kernels) {
    EXPECT_FALSE(kernel.spills) << name
                                << " spills registers to memory: let a thread keep less, or "
                                << "give __launch_bounds__ that leave it more registers";
  }
}

TEST_F(KernelRegisters, AreAsReviewed) {
  const std::string toolkit = absl::StrCat("# Compiled by CUDA ", reports_.toolkit, ".\n");
  if (!std::getenv("WEIR_UPDATE_GOLDEN") && !absl::StrContains(ReadGoldenInput(kGolden), toolkit)) {
    GTEST_SKIP() << "SKIPPED: CUDA " << reports_.toolkit
                 << " is another release than that of the golden file, and counts otherwise";
  }
  std::string text = absl::StrCat(
      "# Registers of a thread of each CUDA kernel on sm_90a. After a change of a kernel run "
      "tests/golden/update\n# and review the difference.\n",
      toolkit);
  for (const auto& [name, kernel] : reports_.kernels)
    absl::StrAppend(&text, kernel.registers, "\t", name, "\n");
  ExpectGolden(kGolden, text);
}

}  // namespace
}  // namespace weir::golden
