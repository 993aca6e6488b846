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
// of the average under its own name. kInvalidArgument (W0084): there is no average, or no update
// has set the averages yet. Other errors: those of SafetensorsReader::Open.
absl::StatusOr<std::shared_ptr<const store::SafetensorsReader>> OpenValues(const std::string& path,
                                                                           Values values);

// Returns W0084 for a file whose averages no update has set, by the step that the file names. A
// file that names no step is accepted.
absl::Status CheckAveragesAreSet(const store::SafetensorsReader& file);

}  // namespace weir::weights
