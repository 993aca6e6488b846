// Reads a file with the output of `weir plan JOB --json`, which may be of any author.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace weir::view {

// Returns the object of a plan, with all fields that the page reads, and each of its kind. W0538:
// the text is no JSON, has more values than a plan of a page may have, or lacks a field; the
// message names the place.
absl::StatusOr<nlohmann::ordered_json> ReadPlanFile(absl::string_view text,
                                                    const std::string& path);

}  // namespace weir::view
