// Writes the numbers, names and rows of trace reports, in lines of at most kReportColumns columns.
// Sizes are written as everywhere (runtime/base/unit_text.h). Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weir::trace {

inline constexpr size_t kReportColumns = 100;

std::string PercentText(double share);    // "12.5 %"
std::string MillisecondsText(double ns);  // "3.142 ms"
// Returns "1 stage", "2 stages"; the plural is `one` + "s" unless `many` is given.
std::string Counted(int64_t count, absl::string_view one, absl::string_view many = "");

// Returns the name of a row of many layers: "backward layers.3" becomes "backward layers.*", with
// every number of a layer replaced by `*`. Parts of the main function ("main.0") are not layers and
// keep their numbers.
std::string LayerFamily(absl::string_view name);

// Returns "0, 1, 2, 3 and 4 more".
std::string Listed(const std::vector<std::string>& names, size_t shown_max);

// Appends a line, broken at spaces so that no part is longer than kReportColumns; continuation
// lines are indented by `indent` columns. Names without spaces are never cut.
void AppendLine(absl::string_view line, size_t indent, std::string* text);

}  // namespace weir::trace
