// An InputWatch knows what the input files of a run were as the run began, and finds out before a
// later start or a recovery reads them again whether they are the same. Processes that start anew
// open the path; without this check they would train on another file than the first processes did.
//
// The contents count, as FingerprintOf sees them (input_files.h). A file that somebody has
// copied, moved or touched is the same file as long as its bytes are. A change between the blocks
// of a large file that FingerprintOf reads is not seen. Not here: files that a running process has
// open (runtime/store/watched_file.h), and checkpoints, which the run itself may replace.
// Thread rule: immutable after the constructor; any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/fleet/input_files.h"

namespace weir::fleet {

class InputWatch {
 public:
  // Reads the files: `data`, which each start and each recovery reads, and `start`, which is read
  // only as long as the run begins with it: the file of --init, and those that belong to it.
  InputWatch(std::vector<std::string> data, std::vector<std::string> start);

  // Returns the data, and the files of the start where `use` says that they are read, too.
  enum class Use : uint8_t { kData, kDataAndStart };
  std::vector<std::string> FilesFor(Use use) const;
  // Compares these files of this machine with what they were. kDataLoss (W0968): files are others,
  // or are gone; the error names each.
  absl::Status Check(Use use) const { return CheckKnown(FilesFor(use)); }
  // Does what Check does, for those of the files that the watch knows.
  absl::Status CheckKnown(const std::vector<std::string>& files) const;

  // Returns what the file was as the run began; nothing if the watch does not know the file.
  std::optional<FileFingerprint> PrintOf(const std::string& path) const;

 private:
  struct Known {
    FileFingerprint print;
    dev_t device = 0;  // with `inode`: which file had the path
    ino_t inode = 0;
    int64_t changed_seconds = 0;  // since 1970, the time of the last change; for people
  };
  static Known Look(const std::string& path);
  static std::string Text(const Known& file);

  const std::vector<std::string> data_, start_;
  std::map<std::string, Known> known_;
};

}  // namespace weir::fleet
