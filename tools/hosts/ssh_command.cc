#include "tools/hosts/ssh_command.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tools/hosts/host_name.h"
#include "tools/launch/program_path.h"

namespace weir::hosts {
namespace {

constexpr char kSafe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";

}  // namespace

std::string Quoted(const std::string& text) {
  if (!text.empty() && text.find_first_not_of(kSafe) == std::string::npos) return text;
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

absl::StatusOr<HostAgent> AgentCommand(const std::string& host, const SshOptions& options) {
  HostAgent command;
  command.host = host;
  if (IsHere(host)) {
    command.arguments = {options.program, "agent"};
    command.advice = "--weir PATH names the program of Weir";
    return command;
  }
  const std::vector<std::string> words = absl::StrSplit(options.ssh, ' ', absl::SkipEmpty());
  if (words.empty() || launch::FindInOwnPath(words[0]).empty()) {
    return ErrorOf(absl::StatusCode::kNotFound,
                   {"W0877", "--ssh", "a program that reaches other hosts",
                    absl::StrCat("no program '", options.ssh, "'"),
                    "apt-get install openssh-client, or the path of another ssh"});
  }
  command.arguments = words;
  // No question can be answered. A host that is gone is noticed by the silence of its workers, and
  // by ssh itself soon after.
  for (const char* option :
       {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=2", "ServerAliveCountMax=3"}) {
    command.arguments.insert(command.arguments.end(), {"-o", option});
  }
  command.arguments.insert(
      command.arguments.end(),
      {"-T", "--", host, absl::StrCat("exec ", Quoted(options.program), " agent")});
  command.advice = absl::StrCat("`", options.ssh, " ", host, " ", Quoted(options.program),
                                " --version` must work without a question");
  return command;
}

}  // namespace weir::hosts
