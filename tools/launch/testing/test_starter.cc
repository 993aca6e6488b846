// A starter for tests, to be killed: `test_starter WORKER LOG_DIRECTORY COUNT` starts so many
// workers that behave differently, prints "started", and serves them until it is killed.
#include <stdlib.h>
#include <unistd.h>

#include <iostream>

#include "tools/launch/supervisor.h"

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  const char* const verbs[] = {"wait", "chatter", "ignore-terminate", "stop-itself"};
  std::vector<weir::WorkerLaunch> workers;
  for (int i = 0; i < ::atoi(argv[3]); ++i) {
    workers.push_back({{argv[1], verbs[i % 4]}, "rank " + std::to_string(i), {i}});
  }
  weir::SupervisorOptions options;
  options.log_directory = argv[2];
  auto supervisor = weir::Supervisor::Start(workers, options);
  if (!supervisor.ok()) {
    std::cerr << supervisor.status() << std::endl;
    return 70;
  }
  std::cout << "started" << std::endl;
  while ((*supervisor)->num_running() > 0) {
    if (!(*supervisor)->Wait(-1).ok()) return 70;
  }
  return 0;
}
