// An agent for tests: `test_agent [VERB]`. Without a verb it serves; `build-id` prints its build;
// each other verb is one thing that may stand between a starter and an agent.
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "runtime/base/build_id.h"
#include "tools/hosts/agent.h"

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "build-id") {
    std::cout << weir::BuildId();
    return 0;
  }
  if (verb == "greet") std::cout << "Welcome to this host!\nIt has news.\n" << std::flush;
  if (verb == "refuse" || (verb == "need-key" && ::getenv("KEY_OF_TEST") == nullptr)) {
    std::cerr << "user@host: Permission denied (publickey).\n";
    return 255;
  }
  if (verb == "chatter") {
    while (std::cout << "not an agent\n") {
    }
    return 1;
  }
  if (verb == "bare") {  // on a host with an environment of its own
    ::clearenv();
    ::setenv("OMP_OF_TEST", "of this host", 1);
  }
  if (verb == "silent" || (verb == "silent-without-key" && ::getenv("KEY_OF_TEST") == nullptr)) {
    ::alarm(60);
    while (true) ::pause();
  }
  return weir::hosts::RunAgentOnStandardStreams();
}
