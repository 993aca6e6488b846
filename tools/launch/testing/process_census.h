// What a test must find again as it was: the processes below this one and its open descriptors.
// While it lives, orphans of the processes below become children of this one, so that none gets
// away. Thread rule: one thread; nothing else may wait for children meanwhile.
#pragma once

#include <set>
#include <string>

namespace weir {

class ProcessCensus {
 public:
  ProcessCensus();
  ~ProcessCensus();
  ProcessCensus(const ProcessCensus&) = delete;
  ProcessCensus& operator=(const ProcessCensus&) = delete;

  // Waits until all children of this process, orphans of theirs included, have ended of themselves;
  // hangs if one does not (the test's own limit ends that). Returns how many there were.
  int CollectOrphans();
  // "" if neither a process, dead or alive, nor a descriptor is there that was not at the begin.
  std::string Leftovers();

 private:
  std::set<std::string> descriptors_;
};

}  // namespace weir
