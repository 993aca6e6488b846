// A starter for tests. `test_starter WORKER LOG_DIRECTORY VERB...` starts a test worker per verb,
// prints "started", and serves the workers until they have ended (exit code 0) or a signal asks it
// to end. After a signal it stops the workers, with a grace of an hour that only a second signal
// cuts short (exit code 130).
#include <iostream>

#include "tools/launch/signal_watch.h"
#include "tools/launch/supervisor.h"

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  weir::IdVector<weir::WorkerId, weir::launch::WorkerLaunch> workers;
  for (int i = 3; i < argc; ++i)
    workers.push_back({{argv[1], argv[i]}, "rank " + std::to_string(i - 3), {weir::RankId(i - 3)}});
  weir::launch::SignalWatch signals(weir::launch::SecondSignal::kIsAnEvent);
  weir::launch::SupervisorOptions options;
  options.log_directory = argv[2];
  options.console = &std::cout;
  options.grace_ms = 3600 * 1000;
  options.wake_descriptor = signals.descriptor();
  auto supervisor = weir::launch::Supervisor::Start(workers, options);
  if (!supervisor.ok()) {
    std::cerr << supervisor.status().message() << std::endl;
    return 70;
  }
  std::cout << "started" << std::endl;
  while ((*supervisor)->num_running() > 0) {
    if (!(*supervisor)->Wait(-1).ok()) return 70;
    if (!signals.Take().has_value()) continue;
    for (const weir::launch::WorkerExit& exit : (*supervisor)->Stop()) {
      std::cout << "worker " << exit.worker << ": " << weir::launch::ExitText(exit) << std::endl;
    }
    return 130;
  }
  return 0;
}
