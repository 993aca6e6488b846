// The files that travel between the starter and the host of an agent: a file, or the memory that a
// process has left, that the starter fetches, in pieces, and files that the starter ships here.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/agent.pb.h"
#include "runtime/store/pending_file.h"

namespace weir::hosts {

// A FetchedFile gives the content of one file, piece by piece.
class FetchedFile {
 public:
  // Opens the file. An error is in the only report then.
  explicit FetchedFile(const proto::FetchOrder& order);
  // Gives these bytes in place of a file.
  FetchedFile(int64_t request, absl::StatusOr<std::string> bytes);

  // Returns the next report of the file; nullopt after the last one.
  std::optional<proto::FetchReport> Next();

 private:
  absl::Status Open(const proto::FetchOrder& order);

  const int64_t request_;
  std::unique_ptr<std::istream> content_;  // null: status_ says why
  absl::Status status_;
  bool has_ended_ = false;
};

// A ShippedFile takes the pieces of one file after the other.
class ShippedFile {
 public:
  // Takes a piece. Returns a report after the last piece of a file, and after the first piece that
  // cannot be taken; what then comes of the same request is ignored.
  std::optional<proto::ShipReport> Take(const proto::ShipOrder& piece);

 private:
  absl::Status Write(const proto::ShipOrder& piece);

  int64_t request_ = 0;
  bool has_ended_ = false;
  std::unique_ptr<store::PendingFile> file_;
};

}  // namespace weir::hosts
