// Writes a file from start to end so that the file appears as a whole or not at all
// (pending_file.h), and flushes it to disk. Thread rule: any thread.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace weir::store {

// `write` fills the stream. CannotWrite if the file cannot be made, otherwise the status of
// `write`. After an error the file at `path` is unchanged.
absl::Status WriteWholeFile(const std::string& path,
                            const std::function<absl::Status(std::ostream& out)>& write);
// Writes `text`. Errors are those of WriteWholeFile.
absl::Status WriteWholeText(const std::string& path, const std::string& text);

}  // namespace weir::store
