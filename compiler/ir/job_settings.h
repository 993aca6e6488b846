// The settings of a job: how to cut, train and run its graph. compiler/job/import_settings.h reads
// the settings from the job's message once, with the defaults filled in, and all passes read the
// settings. Not here: the graph (ir.h), the mesh (sbp/places.h), the rules (layout_rules.h).
// Thread rule: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/schedule.h"

namespace weir::compiler {

// The schedules of a pipeline; proto/job.proto describes them.
enum class ScheduleKind : uint8_t { kOneFOneB, kGpipe, kInterleaved, kZeroBubble };
std::string Name(ScheduleKind kind);  // "1F1B", "zero-bubble"

// The ways to choose the slots of registers; proto/job.proto describes them.
enum class RegisterChoice : uint8_t { kSchedule, kSolved, kOne, kTwo, kTwiceStages };
std::string Name(RegisterChoice choice);  // as a job writes the choice: "SOLVED"

struct PipelineSettings {
  ScheduleKind schedule = ScheduleKind::kOneFOneB;
  int64_t virtual_stages = 0;    // parts per stage; 0: as many as the schedule needs at least
  std::vector<std::string> cut;  // the call that begins each part but the first; empty: balanced
  // Puts the calls with this name, or the calls of the functions with this name, on a stage. A star
  // in a name stands for any characters.
  struct Place {
    std::string call, function;  // one of the two is empty
    int64_t stage = 0;
  };
  std::vector<Place> places;  // the first that matches a call counts; empty: the cut decides
};

struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
};

struct SgdSettings {
  double momentum = 0, weight_decay = 0;
};

struct LionSettings {
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
};

struct LambSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, weight_decay = 0;
};

struct AdafactorSettings {
  double beta2_decay = -0.8, epsilon1 = 1.1920928955078125e-7, epsilon2 = 1e-3;
  double clip_threshold = 1, weight_decay = 0;
};

struct MuonSettings {
  double momentum = 0.95, epsilon = 1e-7, weight_decay = 0;
  bool nesterov = true;
  int64_t iterations = 5;
  bool adjusts_rms = false;  // proto::Optimizer::Muon::RMS
  bool flattens = false;     // takes weights of more than two dimensions for matrices
  AdamWSettings others;      // of the weights that are no matrices
};

using OptimizerSettings = std::variant<AdamWSettings, SgdSettings, LionSettings, LambSettings,
                                       AdafactorSettings, MuonSettings>;

// The weights whose names fit a pattern, and what training does with them.
struct GroupSettings {
  std::vector<std::string> patterns;
  double rate = 1;                     // a factor of the learning rate
  std::optional<double> weight_decay;  // none: what the optimiser and the weight say
  bool frozen = false;
  std::optional<OptimizerSettings> optimizer;  // none: that of the training
};

// Operations, and the precision in which they compute.
struct PrecisionRule {
  std::vector<std::string> patterns;  // of names of functions, calls and nodes; none: all
  std::vector<std::string> ops;       // patterns of operations; none: all
  DType precision = DType::kF32;
};

// The factor of the gradient of the loss (LossScale of proto/job.proto).
struct LossScaleSettings {
  bool adapts = true;
  double factor = 65536;  // the first one, if it adapts
  double growth = 2, backoff = 0.5;
  int64_t growth_interval = 2000;
};

// Returns whether there is a loss scale that adapts.
inline bool Adapts(const std::optional<LossScaleSettings>& loss_scale) {
  return loss_scale.has_value() && loss_scale->adapts;
}

struct TrainingSettings {
  uint64_t seed = 0;
  int zero_stage = 0;                           // 0 to 3
  std::string zero_axis = "dp";                 // the mesh axis that ZeRO splits states over
  DType precision = DType::kF32;                // of parameters and activations in model functions
  std::vector<PrecisionRule> precision_rules;   // the first that a node fits counts
  std::optional<LossScaleSettings> loss_scale;  // with f16 alone
  double clip_norm = 0;                         // 0: gradients are not clipped
  OptimizerSettings optimizer;
  LearningRateSchedule learning_rates;
  std::vector<GroupSettings> groups;
  std::optional<double> average_decay;  // none: no averages of weights
};

// Returns the optimiser of the weights of group `group`; -1: of those in no group.
inline const OptimizerSettings& OptimizerOf(const TrainingSettings& training, int group) {
  if (group < 0 || !training.groups[group].optimizer.has_value()) return training.optimizer;
  return *training.groups[group].optimizer;
}

// Collectives says how the data of reductions and gathers of a group of ranks move (job.proto).
// kGroups: in operations of the groups, whichever library does them.
enum class Collectives : uint8_t { kExchanges, kGroups };

// Returns the number of tensors like a weight that training keeps beside most weights.
int StatesOfWeight(const TrainingSettings& training);

// GraphUse says which acts of a device are graphs of kernels (job.proto).
enum class GraphUse : uint8_t { kOff, kAuto, kOn };

struct RuntimeSettings {
  std::string device;           // kind of device; "": the default kind
  int device_queues = 0;        // 0: the default, as for all counts here
  int device_depth = 0;         // acts
  int64_t chunk_bytes_max = 0;  // of a message
  RegisterChoice registers = RegisterChoice::kSchedule;
  Collectives collectives = Collectives::kExchanges;
  int32_t collective_kib_min = 0;    // smaller tensors pass in exchanges
  int64_t debug_register_slots = 0;  // if above 0: the slots of every register
  int64_t register_bytes_max = 0;    // of a device, where slots are solved; 0: no bound
  int64_t gather_ahead = 1;          // calls; below 0: no bound
  GraphUse graphs = GraphUse::kOff;
};

struct JobSettings {
  PipelineSettings pipeline;
  TrainingSettings training;
  RuntimeSettings runtime;
};

}  // namespace weir::compiler
