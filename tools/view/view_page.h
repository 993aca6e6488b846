// The page of `weir view`: one HTML file with its script and its style inside. The page loads
// nothing from elsewhere: its content policy allows only its own script and style, by their hashes,
// and only its own address for the run. Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weir::view {

// The files of the page (tools/view/page), embedded when Weir is built.
extern const char kPageStyle[];
extern const char kPageFrame[];
extern const char kPageScript[];

// Returns the page that asks its server for the run, at the address `run` beside its own.
std::string ServedPage();

// Returns the page with a run inside (run_bundle.h), packed. The page opens from disk, without any
// server. kInternal: the run cannot be packed.
absl::StatusOr<std::string> WholePage(absl::string_view bundle);

}  // namespace weir::view
