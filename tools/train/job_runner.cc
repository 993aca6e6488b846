#include "tools/train/job_runner.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "runtime/base/status.h"

namespace weir {

absl::Status WriteTraceFile(const std::string& path, const std::string& trace) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << trace;
  file.close();
  if (file) return absl::OkStatus();
  return Missing({"W0075", "--trace " + path, "a file that can be written", "none", "check that the folder exists and has room"});
}

absl::StatusOr<std::unique_ptr<JobRunner>> LocalRunner::Open(const Job& job, int threads_per_device, int64_t first_step) {
  std::unique_ptr<LocalRunner> runner(new LocalRunner());
  RankGroupOptions options;
  options.threads_per_device = threads_per_device;
  options.first_step = first_step;
  WEIR_ASSIGN_OR_RETURN(runner->group_, RankGroup::Open(job, options));
  const RankGroup& group = *runner->group_;
  RunnerFacts& facts = runner->facts_;
  facts.data = group.dataset().Describe();
  facts.num_ranks = group.plan().mesh.num_ranks();
  facts.mesh = group.plan().mesh.ToText();
  facts.threads_per_device = group.threads_per_device();
  facts.bytes_per_device = group.bytes_per_device();
  facts.states = group.States(StateSet::kAll);
  facts.evaluation_batches = group.evaluation_batches();
  return runner;
}

absl::Status LocalRunner::Save(StateSet set, const std::map<std::string, std::string>& metadata, const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsWriter> writer, BeginSave(facts_.states, set, metadata, path));
  WEIR_ASSIGN_OR_RETURN(auto parts, group_->SaveShards(set, writer->temporary_path()));
  for (const auto& [name, elements] : parts) WEIR_RETURN_IF_ERROR(writer->NotePart(name, elements));
  return writer->Commit();
}

absl::Status LocalRunner::WriteTrace(const std::string& path) {
  const Session& session = group_->session();
  std::ostringstream trace;
  WEIR_RETURN_IF_ERROR(session.WriteTrace(trace, {.begin_ns = session.TraceBeginNs()}));
  return WriteTraceFile(path, std::move(trace).str());
}

}  // namespace weir
