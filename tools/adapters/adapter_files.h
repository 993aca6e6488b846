// Files of weights of a job with adapters (add_adapters.h): the small file of what is trained, the
// file of all weights, and the file without adapters, which fits the job that had none. Tensors
// have the names of the job. One weight is in memory at a time.
// Thread rule: pure functions, except for reading and writing files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/graph.pb.h"
#include "runtime/store/safetensors.h"
#include "tools/adapters/find_adapters.h"
#include "tools/weights/find_weights.h"
#include "tools/weights/mapped_weights.h"

namespace weir::adapters {

// The weights of a job with adapters.
struct AdaptedJob {
  weights::WeightTypes types;
  std::vector<Adapter> adapters;
  std::vector<std::string> trained;  // the weights that the graph does not freeze
};

// `types` has the weights of the graph, which compiles. kInvalidArgument (W0852): the graph has no
// adapters, or others than `weir lora add` makes.
absl::StatusOr<AdaptedJob> AdaptedJobOf(const proto::Graph& graph, weights::WeightTypes types);

// Where the values of a job with adapters are.
class AdaptedWeights {
 public:
  // `adapters` is the file that WriteAdapters has made; null: `weights` has the adapters. A weight
  // that both files have comes from `adapters`. kInvalidArgument: W0853 if adapters are missing, or
  // `adapters` has a tensor that is no weight of the job; or an error of MapWeights.
  static absl::StatusOr<AdaptedWeights> Open(
      const AdaptedJob& job, std::shared_ptr<const store::SafetensorsReader> weights,
      std::shared_ptr<const store::SafetensorsReader> adapters, const weights::MapPlaces& places);

  // Reads the whole of a weight as `type`.
  absl::Status Read(const std::string& weight, const weights::WeightType& type, void* out) const;

 private:
  AdaptedWeights(weights::MappedWeights weights,
                 std::shared_ptr<const store::SafetensorsReader> adapters)
      : weights_(std::move(weights)), adapters_(std::move(adapters)) {}

  weights::MappedWeights weights_;
  std::shared_ptr<const store::SafetensorsReader> adapters_;
};

// Writes the trained weights alone.
absl::Status WriteAdapters(const AdaptedJob& job, const AdaptedWeights& from,
                           const std::string& path);
// Writes all weights.
absl::Status WriteJoined(const AdaptedJob& job, const AdaptedWeights& from,
                         const std::string& path);
// Writes the weights without adapters, each of them with what its adapters add to it.
absl::Status WriteMerged(const AdaptedJob& job, const AdaptedWeights& from,
                         const std::string& path);

}  // namespace weir::adapters
