#include "tools/hosts/ssh_command.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::hosts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string MakeProgram(const std::string& name) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  std::ofstream(path) << "#!/bin/sh\n";
  ::chmod(path.c_str(), 0755);
  return path;
}

TEST(SshCommandTest, AHostIsReachedByOneCommandWithoutQuestions) {
  const std::string ssh = MakeProgram("ssh");
  const HostAgent command = *AgentCommand("n1", {ssh + " -p 2222", "/opt/it's weir"});
  EXPECT_EQ(absl::StrJoin(command.arguments, " "),
            ssh +
                " -p 2222 -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=2 -o "
                "ServerAliveCountMax=3 -T -- n1 exec '/opt/it'\\''s weir' agent");
  EXPECT_EQ(command.host, "n1");
}

TEST(SshCommandTest, ThisMachineNeedsNoSsh) {
  const HostAgent command = *AgentCommand("localhost", {"no-such-ssh", "/opt/weir"});
  EXPECT_THAT(command.arguments, ElementsAre("/opt/weir", "agent"));
}

TEST(SshCommandTest, AProgramThatIsNotThereIsNamed) {
  const absl::Status status = AgentCommand("n1", {"no-such-ssh -v", "/opt/weir"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("W0877 at --ssh"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no program 'no-such-ssh -v'"));
}

TEST(SshCommandTest, WordsAreQuotedForAShell) {
  EXPECT_EQ(Quoted("/opt/weir"), "/opt/weir");
  EXPECT_EQ(Quoted(""), "''");
  EXPECT_EQ(Quoted("a b$(c)"), "'a b$(c)'");
}

}  // namespace
}  // namespace weir::hosts
