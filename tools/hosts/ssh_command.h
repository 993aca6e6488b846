// The command that starts the agent of a host: ssh, or the agent itself on this host.
// Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/hosts/hosts_supervisor.h"

namespace weir::hosts {

struct SshOptions {
  std::string ssh = "ssh";  // a program and perhaps its options: "ssh -p 2222"
  std::string program;      // the path of Weir on the hosts
};

// kNotFound (W0877) if there is no program such as ssh.
absl::StatusOr<HostAgent> AgentCommand(const std::string& host, const SshOptions& options);

// Returns `text` as one word of a shell of the POSIX kind.
std::string Quoted(const std::string& text);

}  // namespace weir::hosts
