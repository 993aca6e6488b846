// The trace of a job that failed: the parts that its workers leave, and the marks of its failures.
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/trace/kept_acts.h"
#include "runtime/trace/trace_file.h"
#include "runtime/trace/trace_parts.h"
#include "tools/fleet/fleet.h"
#include "tools/launch/failure_report.h"
#include "tools/launch/placement.h"
#include "tools/train/job_runner.h"

namespace weir::fleet {
namespace {

constexpr int64_t kTracePartBytesMax = int64_t{256} << 20;  // of a part that a host sends

}  // namespace

std::string Fleet::TracePartOf(WorkerId worker) const {
  if (options_.trace.empty()) return "";
  // A host need not have this process's folder as its own.
  return absl::StrCat(options_.hosts.empty() ? log_directory_ : AbsoluteLogDirectory(), "/worker-",
                      worker, ".pftrace-part");
}

// Reads the part that a worker has left, on its host. kNotFound if the part is absent or empty.
absl::StatusOr<std::string> Fleet::ReadTracePart(WorkerId worker) {
  if (on_hosts_ != nullptr)
    return on_hosts_->FetchFile(HostIdOf(worker), TracePartOf(worker), kTracePartBytesMax);
  std::ostringstream bytes;
  bytes << std::ifstream(TracePartOf(worker), std::ios::binary).rdbuf();
  if (!bytes) return absl::NotFoundError(TracePartOf(worker));
  return bytes.str();
}

// Returns the trace of a worker's ranks from the memory that outlives the worker.
absl::StatusOr<std::string> Fleet::ReadKeptActs(WorkerId worker) {
  WEIR_ASSIGN_OR_RETURN(const std::string memory,
                        supervisor_->ReadMemory(worker, trace::kKeptBytesMax));
  return trace::TraceOfKept(memory);
}

// Returns the packets that mark the failures in the trace of the job.
std::string Fleet::MarksOfFailures() {
  launch::FailedJob job;
  {
    MutexLock lock(&mutex_);
    job.events = failures_;
  }
  std::vector<trace::TraceFailure> failures;
  for (launch::FailureMark& mark : launch::MarkFailures(job))
    failures.push_back({mark.time_ns, std::move(mark.ranks), std::move(mark.what)});
  std::ostringstream packets;
  trace::WriteFailures(failures, packets).IgnoreError();  // a stream in memory takes all
  return std::move(packets).str();
}

// Gathers the trace. All workers have ended, and those that could have written their parts.
void Fleet::GatherTrace(const IdVector<WorkerId, int64_t>& clock_offset_ns) {
  std::vector<trace::TracePart> parts;
  std::vector<std::string> missing, from_memory;
  for (const WorkerId worker : workers()) {
    absl::StatusOr<std::string> bytes = ReadTracePart(worker);
    if (!bytes.ok()) {
      bytes = ReadKeptActs(worker);
      if (bytes.ok()) from_memory.push_back(LabelOf(worker));
    }
    if (!bytes.ok()) {
      missing.push_back(LabelOf(worker));
      continue;
    }
    parts.push_back({*std::move(bytes), clock_offset_ns[worker]});
  }
  if (parts.empty()) {
    options_.console->Say("no trace: no worker has left what its ranks did");
    return;
  }
  absl::StatusOr<std::string> joined = trace::JoinTraceParts(parts);
  if (joined.ok()) *joined += MarksOfFailures();
  const absl::Status written =
      joined.ok() ? train::WriteTraceFile(options_.trace, *joined) : joined.status();
  if (!written.ok()) {
    options_.console->Say(absl::StrCat("no trace: ", written.message()));
    return;
  }
  IdVector<HostId, std::vector<std::string>> on_hosts(options_.hosts.size());
  for (const WorkerId worker : workers()) {
    if (on_hosts_ != nullptr) {
      on_hosts[HostIdOf(worker)].push_back(TracePartOf(worker));
      on_hosts[HostIdOf(worker)].push_back(TracePartOf(worker) + ".partial");
    } else {
      ::unlink(TracePartOf(worker).c_str());
      // A worker may have been killed while it wrote.
      ::unlink((TracePartOf(worker) + ".partial").c_str());
    }
  }
  if (on_hosts_ != nullptr) on_hosts_->RemoveFiles(on_hosts);
  options_.console->Say(absl::StrCat(
      "trace of the failed job written to ", options_.trace,
      from_memory.empty() ? ""
                          : absl::StrCat("; from memory that outlived the process: ",
                                         absl::StrJoin(from_memory, ", ")),
      missing.empty() ? "" : absl::StrCat("; missing: ", absl::StrJoin(missing, ", "))));
}

}  // namespace weir::fleet
