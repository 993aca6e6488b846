// ReplacedFiles are the files that several new files replace together. Each is set aside under the
// name <path>.replaced-<16 hexadecimal digits>, which has the same digits for all of them, until
// the new files are there. Then the files are dropped; or, if a new file cannot get its name, they
// are put back. The first file that is set aside is the one that makes the others readable: it is
// the last that is put back.
//
// A process that is killed leaves files set aside. LeftBeside finds them, and whoever has the right
// to write there (path_lock.h) drops them or puts them back (ClearUp). The destructor does neither.
// Functions return 0 or errno, unless they say otherwise. Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weir::store {

class ReplacedFiles {
 public:
  // Returns the files that were set aside and have not come back, for any of the paths: one object
  // for all files that were set aside together, the newest first, each with its files in the order
  // of the paths. Takes regular files and links only. Links at the paths are not followed.
  static std::vector<ReplacedFiles> LeftBeside(const std::vector<std::string>& paths);
  // Clears up what killed processes have left for `first`, which makes the others readable, and for
  // the others, temporary files too. Where there is a `first`, all is whole, and what was set aside
  // is dropped. Where there is none, what was set aside last comes back first, until a `first` has
  // come back; what was set aside before that is dropped. So files of two sets are never mixed.
  // Links at the paths are followed. CannotWrite if the disk refuses. Precondition: nobody else
  // writes there.
  static absl::Status ClearUp(const std::string& first, const std::vector<std::string>& others);

  // Renames the file at the path, so that the renaming survives a loss of power. Does nothing if
  // there is none. A symbolic link at the path is renamed itself.
  int SetAside(const std::string& path);
  // Gives the files their names again, in place of what has the names by now. After an error
  // those that are still set aside stay so, the first file among them.
  int PutBack();
  // Removes the files. After an error those that are left stay.
  int Drop();
  // Undoes a replacement that has failed: removes the new files, and puts the earlier ones back.
  // `paths` are those of the new files in the order in which they are published; the last one makes
  // the others readable. At most the first `num_published` are there. Returns the failure with what
  // has become of the earlier files. If the last one is there, only the last flush has failed, the
  // new files are in their places as a whole, and nothing is undone.
  absl::Status GoBack(const absl::Status& failure, const std::vector<std::string>& paths,
                      size_t num_published);

  // The paths of those that are set aside.
  std::vector<std::string> paths() const;
  // Returns the text that follows the path in the names of the files that SetAside has renamed.
  const std::string& ending() const { return ending_; }

 private:
  struct File {
    std::string path;   // before and, once put back, again
    std::string aside;  // now
  };
  int Flush() const;  // the folders of the files

  std::string ending_;  // ".replaced-0123456789abcdef"; empty: SetAside has not been called
  std::vector<File> files_;
};

}  // namespace weir::store
