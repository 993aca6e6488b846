// The files of one export of weights, until they have their names: one file, or several files and
// an index that names the file of each tensor. A reader sees an earlier export whole, or the new
// one whole, or, for a moment, no index at all:
//
//   Seal     every byte is on disk; no file has its name yet       the earlier export is whole
//   Commit   the index of the earlier export is set aside          no index: W0047 says so
//            each new file gets its name; one that has it is       likewise
//            set aside before
//            other files of the earlier export are set aside       likewise
//            the new index gets its name                           the new export is whole
//            the files that were set aside go
//
// If the disk refuses an operation of Commit, the files that were set aside come back, the index
// last, and the earlier export is whole again. A kill at any moment leaves one of these states on
// disk, and so does a loss of power. The next export to the path removes temporary files, and puts
// back what is set aside while there is no index. From Seal on, no other process exports to the
// path (path_lock.h). On a file system without locks another process may, so that there nothing is
// removed or put back. The disk needs room for both exports. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/store/path_lock.h"
#include "runtime/store/replaced_files.h"
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
// nothing names. Adds the AsideText of the export.
std::string StrayText(const std::string& path, const std::vector<std::string>& files);
// Returns a sentence about files that an export has set aside for any of the paths, or for what
// symbolic links there lead to, and that are still there after another export; "" if there are
// none.
std::string AsideText(const std::vector<std::string>& paths);

class ExportFiles {
 public:
  // `files` has the tensors of each file and is not empty. An export of one file has no index.
  ExportFiles(const std::string& path, std::vector<Entries> files);
  ExportFiles(const ExportFiles&) = delete;
  ExportFiles& operator=(const ExportFiles&) = delete;

  // The files, and then the index if there are several.
  const std::vector<std::string>& paths() const { return paths_; }

  // Takes the right to export to the path, until the object goes away, clears up what killed
  // exports have left there, makes each file with `metadata`, lets `fill` write all its tensors,
  // and brings every byte to disk. Errors: those of PathLock::Take, of CheckNoOtherExport, of
  // `fill` and of SafetensorsWriter, or CannotWrite. After an error nothing of the new export is
  // there; what was cleared up stays so.
  using Fill = std::function<absl::Status(store::SafetensorsWriter* writer)>;
  absl::Status Seal(const std::map<std::string, std::string>& metadata, const Fill& fill);
  // Gives the files their names. Precondition: Seal has succeeded. CannotWrite: the disk refuses,
  // and the earlier export is there as before. If the disk does not even let the earlier files come
  // back, or cannot flush the new index, the error says so.
  absl::Status Commit();

  // Does the first `count` operations of Commit, as if the process were killed after them. Returns
  // whether there are more.
  absl::StatusOr<bool> CommitSomeForTest(size_t count);

 private:
  using Operation = std::function<absl::Status()>;
  std::vector<Operation> Operations();
  absl::Status Begin();
  // Tries whether a file can appear at each path.
  absl::Status TryPaths() const;
  absl::Status SealIndex();
  absl::Status SetAside(const std::string& path);

  const std::string path_;
  const std::vector<Entries> files_;
  const std::vector<std::string> paths_;
  std::unique_ptr<store::PathLock> lock_;                           // null before Seal
  std::vector<std::unique_ptr<store::SafetensorsWriter>> writers_;  // sealed
  std::unique_ptr<store::SealedFile> index_;                        // null: one file
  store::ReplacedFiles replaced_;
  size_t num_published_ = 0;  // of paths_; the last of them perhaps not
};

}  // namespace weir::weights
