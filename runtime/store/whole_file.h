// Writes a file from start to end so that the file appears as a whole or not at all
// (pending_file.h), and flushes it to disk. Thread rule: any thread.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/store/pending_file.h"

namespace weir::store {

// A file whose bytes are all on disk, and which has its name once it is committed. It disappears if
// it is not. Whoever writes several files can so seal them all before the first gets its name.
// Thread rule: one thread.
class SealedFile {
 public:
  // `write` fills the stream. CannotWrite if the file cannot be made, otherwise the status of
  // `write`. The path is unchanged.
  static absl::StatusOr<std::unique_ptr<SealedFile>> Seal(
      const std::string& path, const std::function<absl::Status(std::ostream& out)>& write);
  // Replaces the file at the path. Call it once. CannotWrite if the disk refuses.
  absl::Status Commit();

 private:
  explicit SealedFile(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  PendingFile file_;
};

// `write` fills the stream. CannotWrite if the file cannot be made, otherwise the status of
// `write`. After an error the file at `path` is unchanged.
absl::Status WriteWholeFile(const std::string& path,
                            const std::function<absl::Status(std::ostream& out)>& write);
// Writes `text`. Errors are those of WriteWholeFile.
absl::Status WriteWholeText(const std::string& path, const std::string& text);

}  // namespace weir::store
