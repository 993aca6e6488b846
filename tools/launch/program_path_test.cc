#include "tools/launch/program_path.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weir::launch {
namespace {

std::string MakeProgram(const std::string& name) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  std::ofstream(path) << "#!/bin/sh\n";
  ::chmod(path.c_str(), 0755);
  return path;
}

TEST(ProgramPathTest, ProgramsAreFoundAsAShellFindsThem) {
  const std::string program = MakeProgram("tool");
  const std::string folder = program.substr(0, program.rfind('/'));
  EXPECT_EQ(FindInPath("tool", absl::StrCat("/nowhere:", folder)), program);
  EXPECT_EQ(FindInPath(program, ""), program);
  EXPECT_EQ(FindInPath("tool", "/nowhere"), "");
  EXPECT_EQ(FindInPath(folder, ""), "") << "a folder is no program";
}

TEST(ProgramPathTest, AFileThatMayNotBeExecutedIsToldFromNoFile) {
  const std::string program = MakeProgram("tool");
  EXPECT_EQ(FindNotExecutable(program), "");
  ::chmod(program.c_str(), 0644);
  EXPECT_EQ(FindNotExecutable(program), program);
  EXPECT_EQ(FindInPath(program, ""), "");
  EXPECT_EQ(FindNotExecutable(program + "no"), "");
  EXPECT_EQ(FindNotExecutable(program.substr(0, program.rfind('/'))), "") << "it is a folder";
}

TEST(ProgramPathTest, TheProgramOfThisProcessHasAPath) {
  const std::string program = ResolvedProgram(kOwnProgramLink);
  EXPECT_NE(program.find("program_path_test"), std::string::npos) << program;
  EXPECT_EQ(ResolvedProgram("/nowhere/link"), "/nowhere/link");
}

}  // namespace
}  // namespace weir::launch
