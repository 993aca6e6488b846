// The page of `weir view`: one HTML file with its script and its style inside. The page loads
// nothing from elsewhere: its content policy allows only its own script and style, by their hashes,
// and only its own address for the run. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weir::view {

// The files of the page (tools/view/page), embedded when Weir is built.
extern const char kPageStyle[];
extern const char kPageFrame[];
extern const char kPageScript[];

// The run that a page shows: one that was recorded, at the address `run` beside the page's own, or
// one that goes on, at the address `live`.
enum class Shows : uint8_t { kRecorded, kLive };

// Returns the page that asks its server for the run.
std::string ServedPage(Shows shows);

// Returns the page with a run inside (run_bundle.h), packed. The page opens from disk, without any
// server. kInternal: the run cannot be packed.
absl::StatusOr<std::string> WholePage(absl::string_view bundle);

}  // namespace weir::view
