// Lists the members of a zip archive, such as an .npz file of NumPy, from its central directory.
// Archives above 4 GiB (zip64) are known; archives of several parts and encrypted members are
// not. Nothing in the archive is trusted, and the directory is bounded. Thread rule: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/store/watched_file.h"

namespace weir::store {

struct ZipMember {
  std::string name;
  bool is_stored = false;  // as it is, neither compressed nor encrypted
  int64_t begin = 0;       // of its bytes in the file; only if it is stored
  int64_t size = 0;        // bytes in the file
};

// Returns whether the file begins as a zip archive with members does.
absl::StatusOr<bool> IsZip(const WatchedFile& file);

// kInvalidArgument (W0790): no whole archive, or more than `members_max` members.
absl::StatusOr<std::vector<ZipMember>> ZipMembersOf(const WatchedFile& file, int64_t members_max);

}  // namespace weir::store
