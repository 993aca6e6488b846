#include "tools/fleet/worker_facts.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "tools/fleet/input_files.h"

namespace weir::fleet {

void AddStates(const std::map<std::string, train::StateType>& states, proto::WorkerAnswer* answer) {
  for (const auto& [name, type] : states) {
    proto::StateFact* fact = answer->add_state();
    fact->set_name(name);
    fact->set_dtype(std::string(Name(type.dtype)));
    fact->set_state_class(actors::ToProto(type.state_class));
    for (const int64_t size : type.shape) fact->add_shape(size);
  }
}

absl::Status TakeStates(const proto::WorkerAnswer& answer,
                        std::map<std::string, train::StateType>* states) {
  for (const proto::StateFact& fact : answer.state()) {
    const std::optional<DType> dtype = DTypeFromName(fact.dtype());
    if (!dtype.has_value())
      return absl::InternalError(absl::StrCat("a state of type ", fact.dtype()));
    const std::optional<actors::StateClass> state_class = actors::FromProto(fact.state_class());
    if (!state_class.has_value())
      return absl::InternalError(absl::StrCat("a state of class ", fact.state_class()));
    (*states)[fact.name()] = {*dtype, Shape(fact.shape().begin(), fact.shape().end()),
                              *state_class};
  }
  return absl::OkStatus();
}

void AddMetrics(const std::map<int64_t, train::StepMetrics>& reported,
                proto::WorkerAnswer* answer) {
  for (const auto& [step, metrics] : reported) {
    for (const auto& [name, value] : metrics) {
      proto::MetricFact* fact = answer->add_metric();
      fact->set_step(step);
      fact->set_name(name);
      fact->set_value(value);
    }
  }
}

void AddWork(const std::vector<actors::RankWorkReport>& work, proto::WorkerAnswer* answer) {
  for (const actors::RankWorkReport& rank : work) {
    proto::RankWorkFact* fact = answer->add_work();
    fact->set_rank(rank.rank.value());
    fact->set_stage(rank.stage);
    fact->set_busy_ns(rank.busy_ns);
    fact->set_planned_ns(rank.planned_ns);
    fact->set_measured_ns(rank.measured_ns);
    fact->set_cpu_ns(rank.cpu_ns);
    for (const int64_t part_ns : rank.part_ns) fact->add_part_ns(part_ns);
  }
}

void AddParts(const std::map<std::string, train::SavedPart>& parts, proto::WorkerAnswer* answer) {
  for (const auto& [name, saved] : parts) {
    proto::PartFact* part = answer->add_part();
    part->set_name(name);
    part->set_elements(saved.elements);
    part->set_nonfinite(saved.nonfinite);
  }
}

void AddInputFiles(const google::protobuf::RepeatedPtrField<std::string>& files,
                   proto::WorkerAnswer* answer) {
  for (const std::string& path : files) {
    const FileFingerprint print = FingerprintOf(path);
    proto::FileFact* fact = answer->add_input_file();
    fact->set_size(print.size);
    fact->set_sum(print.sum);
  }
}

}  // namespace weir::fleet
