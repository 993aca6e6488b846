// A file that has no place yet, or none any more, lies beside that place for a while under the name
// <path><mark><16 hexadecimal digits>. Here such names are made and found. Functions return 0 or
// errno, unless they say otherwise. Thread rule: pure functions over the file system.
#pragma once

#include <string>
#include <vector>

namespace weir::store {

// Returns the folder of a path, with a slash at its end.
std::string FolderOf(const std::string& path);
// Follows the symbolic links at `path` to their end, where nothing needs to be.
int FollowLinks(std::string* path);
// Returns the paths and, after each that is a symbolic link, what the link leads to.
std::vector<std::string> WithTargets(const std::vector<std::string>& paths);
// Flushes the names in the folder of `path`. 0: also if the file system cannot flush folders.
int FlushFolderOf(const std::string& path);

// The marks of a file or folder that has no place yet, and of one that has none any more.
inline constexpr char kPartialMark[] = ".partial-";
inline constexpr char kReplacedMark[] = ".replaced-";

// Returns in `name` a name that no other call on any machine returns.
int NewNameBeside(const std::string& path, const std::string& mark, std::string* name);
struct NameBeside {
  std::string path;  // one of those that were asked for
  std::string name;  // the path of what lies beside it
};
// Returns all that has such names beside the paths, in the order of the paths; none for a path that
// ends in a slash. Reads each folder once, however many paths are in it.
std::vector<NameBeside> NamesBeside(const std::vector<std::string>& paths, const std::string& mark);
// Returns the path of which `name` is such a name; "": of none.
std::string PathOfNameBeside(const std::string& name, const std::string& mark);
// Returns the names of all that is in a folder, without their folder; none if it cannot be read.
// Their number has no bound: half of the files that were set aside must not come back alone.
std::vector<std::string> NamesIn(const std::string& folder);
// Returns the paths of the indices of weights (weight_index.h) that are in a folder, sorted.
std::vector<std::string> WeightIndicesIn(const std::string& folder);

}  // namespace weir::store
