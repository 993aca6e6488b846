// Writes a file from start to end so that it appears as a whole or not at all (pending_file.h), and
// flushes it to disk. Thread rule: any thread.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace weir {

// `write` fills the stream. CannotWrite if the file cannot be made, or the status of `write`; then
// what lay at `path` is as it was.
absl::Status WriteWholeFile(const std::string& path,
                            const std::function<absl::Status(std::ostream& out)>& write);

}  // namespace weir
