// The settings of a job: how to cut, train and run its graph. compiler/job/import_settings.h reads
// the settings from the job's message once, with the defaults filled in, and all passes read the
// settings. Not here: the graph (ir.h), the mesh (sbp/places.h), the rules (layout_rules.h).
// Thread rule: values.
#pragma once

#include <cstdint>
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
};

struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
};

struct SgdSettings {
  double momentum = 0, weight_decay = 0;
};

struct TrainingSettings {
  uint64_t seed = 0;
  int zero_stage = 0;             // 0 to 3
  std::string zero_axis = "dp";   // the mesh axis that ZeRO splits states over
  DType precision = DType::kF32;  // of parameters and activations in model functions
  double clip_norm = 0;           // 0: gradients are not clipped
  std::variant<AdamWSettings, SgdSettings> optimizer;
  LearningRateSchedule learning_rates;
};

// Collectives says how the data of reductions and gathers of a group of ranks move (job.proto).
// kGroups: in operations of the groups, whichever library does them.
enum class Collectives : uint8_t { kExchanges, kGroups };

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
};

struct JobSettings {
  PipelineSettings pipeline;
  TrainingSettings training;
  RuntimeSettings runtime;
};

}  // namespace weir::compiler
