// Checks that a test leaves the processes below this process and its open descriptors as they were.
// While a ProcessCensus lives, orphans of the processes below become children of this process, so
// none escapes. Thread rule: one thread; nothing else may wait for children meanwhile.
#pragma once

#include <set>
#include <string>

namespace weir::launch {

class ProcessCensus {
 public:
  ProcessCensus();
  ~ProcessCensus();
  ProcessCensus(const ProcessCensus&) = delete;
  ProcessCensus& operator=(const ProcessCensus&) = delete;

  // Waits until all children of this process, including their orphans, have ended by themselves.
  // Hangs if one does not (the test's own limit ends that). Returns how many there were.
  int CollectOrphans();
  // Returns "" if there is no process, dead or alive, and no descriptor that was not there at the
  // start.
  std::string Leftovers();

 private:
  std::set<std::string> descriptors_;
};

}  // namespace weir::launch
