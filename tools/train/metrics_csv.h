// Writes the lines of a metrics file (metrics_file.h) as a table of comma-separated values (RFC
// 4180) with a header. The columns of a file follow from the names in it alone: first those that
// every run may have, in the order of docs/reference/metrics.md, then all others by name. A line
// without a value, or with null, has an empty cell. Rows are the lines, in their order.
// Thread rule: a pure function.
#pragma once

#include <ostream>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weir::train {

// Reads the bytes of the file twice and keeps one line at a time. `name` names the file in errors.
// kDataLoss (W0536) at a line that is no object of numbers; a last line without its end, which a
// machine that lost power may leave, is left out.
absl::Status WriteMetricsCsv(absl::string_view file, absl::string_view name, std::ostream& out);

}  // namespace weir::train
