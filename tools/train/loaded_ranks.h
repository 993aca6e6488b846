// LoadedRanks are the ranks of a job that a process holds, as the control plane sees them: what
// they do, what they wait for, and how their work ends. Thread rule: Stop and Progress from any
// thread; the others from the thread that owns the ranks.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "actors/engine/wait_graph.h"
#include "actors/session/progress.h"

namespace weir::train {

class LoadedRanks {
 public:
  virtual ~LoadedRanks() = default;
  // Ends the running work with `reason`. Afterwards the ranks only serve DescribeStall and
  // ListWaits, when the work has ended.
  virtual void Stop(const absl::Status& reason) = 0;
  virtual actors::SessionProgress Progress() const = 0;
  virtual std::string DescribeStall() const = 0;
  virtual std::vector<actors::Wait> ListWaits() const = 0;
};

}  // namespace weir::train
