// The averages of weights (training.average) in files of weights: an average is the tensor
// WEIGHT/average beside WEIGHT. Thread rule: pure functions, except for reading files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/store/safetensors.h"

namespace weir::weights {

inline constexpr char kAverageEnding[] = "/average";

// Returns "wq/average" of "wq".
std::string AverageOf(const std::string& weight);

// A reader of a file takes the weights themselves, or their averages in the place of the weights.
// Weights without an average, such as frozen ones, are themselves in both.
enum class Values : uint8_t { kWeights, kAverages };
// Returns what an option such as --average asks for.
constexpr Values ValuesOf(bool averages) { return averages ? Values::kAverages : Values::kWeights; }

// Opens what SafetensorsReader::Open opens. With kAverages, a tensor with an average has the bytes
// of the average under its own name. kInvalidArgument (W0084): there is no average, or an error of
// CheckAverages. Other errors: those of SafetensorsReader::Open.
absl::StatusOr<std::shared_ptr<const store::SafetensorsReader>> OpenValues(const std::string& path,
                                                                           Values values);

// Checks the averages of a file that has some. kInvalidArgument (W0084): a weight has another state
// (WEIGHT/adam_m) and no average, which the error names; or no update has set the averages, by the
// step that the file names. Optimisers without states (SGD without momentum) leave nothing beside a
// trained weight, so a missing average of theirs looks like a frozen weight. A file that names no
// step is accepted.
absl::Status CheckAverages(const store::SafetensorsReader& file);

}  // namespace weir::weights
