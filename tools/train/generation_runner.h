// A GenerationRunner holds the ranks of a job that generates, and computes their steps. The ranks
// are in this process (LocalGeneration) or in worker processes (FleetGeneration,
// tools/fleet/fleet_generation.h). The generator does not know which, and the tokens do not depend
// on it.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "runtime/store/safetensors.h"
#include "tools/weights/averages.h"
#include "tools/weights/mapped_weights.h"

namespace weir::train {

// The plans of a generation. Those that are open at the same time have networks of their own.
enum class GenerationPlan : uint8_t {
  kPrompts,  // reads some positions of each prompt, and fills the cache of keys and values
  kSteps,    // computes one position of each sequence
  kWindows,  // computes the whole window of each sequence
};

// The inputs of one step, by input of main: i32[rows, width], row-major, each of a width of its
// own, which is at most that of the input. The rest of a row is zero, and so are other inputs.
class TokenRows {
 public:
  explicit TokenRows(int64_t rows = 0) : rows_(rows) {}

  int64_t rows() const { return rows_; }
  // Adds an input of zeros.
  void Add(const std::string& input, int64_t width) {
    values_[input].assign(static_cast<size_t>(rows_ * width), 0);
  }
  int64_t WidthOf(const std::string& input) const {
    return rows_ == 0 ? 0 : static_cast<int64_t>(values_.at(input).size()) / rows_;
  }
  int32_t* Row(const std::string& input, int64_t row) {
    return values_.at(input).data() + row * WidthOf(input);
  }
  const std::map<std::string, std::vector<int32_t>>& values() const { return values_; }
  // Precondition: the input has a multiple of rows() values.
  void Set(const std::string& input, std::vector<int32_t> values) {
    values_[input] = std::move(values);
  }

 private:
  int64_t rows_ = 0;
  std::map<std::string, std::vector<int32_t>> values_;
};

struct GenerationOrder {
  const proto::Job* job = nullptr;
  std::shared_ptr<const store::SafetensorsReader> weights;  // null: the first values
  std::string job_file;         // where a map of weights may lie; empty: nowhere
  weights::WeightTypes unused;  // weights of the file that no state of the plan is
  weights::Values values = weights::Values::kWeights;  // as which `weights` was opened
};

class GenerationRunner {
 public:
  virtual ~GenerationRunner() = default;
  // Compiles the job, loads the ranks of the plan, and loads their weights.
  virtual absl::Status Open(GenerationPlan plan, const GenerationOrder& order) = 0;
  // Runs one step of an open plan.
  virtual absl::Status RunStep(GenerationPlan plan, const TokenRows& tokens) = 0;
  // Returns the logits of the last step: for each of `rows`, a row of f32 for all tokens. Rows
  // count over all positions of all sequences.
  virtual absl::StatusOr<std::vector<std::vector<float>>> Logits(
      GenerationPlan plan, const std::vector<int64_t>& rows) = 0;
  // Returns CacheRowEnds (generation_cache.h) of an open plan.
  virtual std::vector<int64_t> RowEnds(GenerationPlan plan) const = 0;
  // Copies the cache of kPrompts to kSteps. False: some process has no shard of kPrompts that holds
  // a shard of kSteps, so that the cache of kSteps is still to be filled.
  virtual absl::StatusOr<bool> CarryCache() = 0;
  // Gives up the memory of the plan.
  virtual absl::Status Close(GenerationPlan plan) = 0;
};

// All ranks in this process. `threads` of each device; 0: all cores, shared evenly.
std::unique_ptr<GenerationRunner> MakeLocalGeneration(int threads);

}  // namespace weir::train
