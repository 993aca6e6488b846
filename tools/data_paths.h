// Which files a job may name as its data.
//
// Whoever runs a job need not have written it, and the bytes of a file that it names end up in what
// it prints, in its weights and in its errors. So a path that the job's own text says must lie,
// links resolved, in one of:
//   - the folder of the job file, or a folder in it;
//   - the current folder, or a folder in it;
//   - /usr/share, where packages put data that everybody may read;
//   - a folder named by --allow-path, or a folder in it.
// The root folder counts only if --allow-path names it. What the command line itself says (--set
// data.text.path=...) is the user's own word and is free. Not here: files that other flags name
// (--init, --resume), which are the user's word too. Thread rule: functions that look at the file
// system and change nothing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace weir {

// Absolute, with links resolved as far as the path exists. Empty if the file system does not tell.
std::filesystem::path ResolvedPath(const std::filesystem::path& path);

struct DataPath {
  std::string field;  // "data.text.path"
  std::string path;
};
// Every text in the kind of data of a job (text, idx, ...) that is not empty: a field or a kind
// that is added later is confined without a word here.
std::vector<DataPath> DataPathsOf(const Job& job);

struct DataPathRules {
  std::string job_path;              // "-": read from a pipe, which lies in no folder
  std::vector<std::string> allowed;  // by --allow-path
};

// kInvalidArgument: W0813 if one of `paths` lies elsewhere, W0814 if a folder of `rules.allowed` is
// none.
absl::Status CheckDataPaths(const std::vector<DataPath>& paths, const DataPathRules& rules);

}  // namespace weir
