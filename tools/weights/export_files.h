// The files of one export of weights, until they have their names: one file, or several files and
// an index that names the file of each tensor. A reader sees an earlier export whole, or the new
// one whole, or, for a moment, no index at all:
//
//   Seal     every byte is on disk; no file has its name yet       the earlier export is whole
//   Commit   the index of the earlier export goes away             no index: W0047 says so
//            each file gets its name, in place of an earlier one   likewise
//            the new index gets its name                           the new export is whole
//            earlier files that the new index does not name go
//
// A kill at any moment leaves one of these states on disk, and so does a loss of power. The next
// export to the path goes on from any of them. The disk needs room for both exports.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/store/safetensors.h"
#include "runtime/store/whole_file.h"

namespace weir::weights {

using Entries = std::vector<store::SafetensorsWriter::Entry>;

// Packs tensors into files in their order. A file gets no further tensor that would give it more
// than `file_bytes_max` bytes; 0: one file.
std::vector<Entries> PackIntoFiles(const Entries& tensors, int64_t file_bytes_max);

// Returns the names of the files that an export to `path` makes if the tensors need `num_files`:
// NAME-00001-of-00003.safetensors, ..., and NAME.safetensors.index.json.
std::vector<std::string> FilesOfExport(const std::string& path, size_t num_files);
// kInvalidArgument (W0841): the tensors need `num_files` files, and beside `path` is an export of
// the other kind, the index or the single file, which a reader of the folder would not tell from
// the new one.
absl::Status CheckNoOtherExport(const std::string& path, size_t num_files);
// Returns a sentence about files beside `path` that have the name of a file of tensors of an export
// to `path` and are not among `files`, or "". An export that was killed may leave some, which
// nothing names.
std::string StrayText(const std::string& path, const std::vector<std::string>& files);

// The files of tensors that an earlier export to several files has left beside `path`, as its index
// names them. With another number of files a new export replaces the index, and these files would
// stay with nothing that names them.
class EarlierShards {
 public:
  // Reads the index, if there is one. Only names of FilesOfExport count.
  explicit EarlierShards(const std::string& path);
  // Removes the files that are not among `files`, once the index of `files` is written. A file that
  // cannot be removed stays.
  void RemoveOthers(const std::vector<std::string>& files) const;

 private:
  std::vector<std::string> files_;
};

class ExportFiles {
 public:
  // `files` has the tensors of each file and is not empty. An export of one file has no index.
  ExportFiles(const std::string& path, std::vector<Entries> files);
  ExportFiles(const ExportFiles&) = delete;
  ExportFiles& operator=(const ExportFiles&) = delete;

  // The files, and then the index if there are several.
  const std::vector<std::string>& paths() const { return paths_; }

  // Makes each file with `metadata`, lets `fill` write all its tensors, and brings every byte to
  // disk. Errors: those of `fill` and of SafetensorsWriter, or CannotWrite. After an error nothing
  // is there that was not there before.
  using Fill = std::function<absl::Status(store::SafetensorsWriter* writer)>;
  absl::Status Seal(const std::map<std::string, std::string>& metadata, const Fill& fill);
  // Gives the files their names. Precondition: Seal has succeeded. CannotWrite: the disk refuses;
  // in case of several files the earlier export may have lost its index, and the new files are gone
  // unless they have replaced earlier ones.
  absl::Status Commit();

  // Does the first `count` operations of Commit, as if the process were killed after them. Returns
  // whether there are more.
  absl::StatusOr<bool> CommitSomeForTest(size_t count);

 private:
  using Operation = std::function<absl::Status()>;
  std::vector<Operation> Operations();
  absl::Status SealIndex();
  absl::Status RemoveEarlierIndex();

  const std::vector<Entries> files_;
  const std::vector<std::string> paths_;
  const EarlierShards earlier_;
  std::vector<std::unique_ptr<store::SafetensorsWriter>> writers_;  // sealed
  std::unique_ptr<store::SealedFile> index_;                        // null: one file
};

}  // namespace weir::weights
