// Decides which files a job may name as its data.
//
// The user who runs a job may not have written it, and bytes of a file that the job names end up in
// the job's output, weights and errors. A path in the job's own text must therefore lie, with links
// resolved, in one of these folders:
//   - the folder of the job file, or a folder in it;
//   - the current folder, or a folder in it;
//   - /usr/share, where packages put data that everybody may read;
//   - a folder named by --allow-path, or a folder in it.
// The root folder counts only if --allow-path names it. A path on the command line itself (--set
// data.text.path=...) is the user's own choice and is free. Not here: files that other flags name
// (--init, --resume), which are also the user's choice. Thread rule: functions that look at the
// file system and change nothing.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace weir::job {

// Returns the absolute path, with links resolved as far as the path exists. Empty if the file
// system gives no answer.
std::filesystem::path ResolvedPath(const std::filesystem::path& path);

struct DataPath {
  std::string field;  // "data.text.path"
  std::string path;
};
// Returns every non-empty text field in the data kind of a job (text, idx, ...), but for fields
// called `name`. Fields and kinds that are added later are confined without a change here.
std::vector<DataPath> DataPathsOf(const proto::Job& job);

// Returns the files that a reader of the data opens: those of DataPathsOf, the index FILE.idx
// beside a file FILE.bin of tokens, if there is one, and in place of a folder of arrays its files.
std::vector<std::string> DataFilesOf(const proto::Job& job);

// Replaces each of these texts by `replace` of it.
void ReplaceDataPaths(const std::function<std::string(const std::string&)>& replace,
                      proto::Data* data);

struct DataPathRules {
  std::string job_path;              // "-": read from a pipe, which lies in no folder
  std::vector<std::string> allowed;  // by --allow-path
};

// kInvalidArgument: one of `paths` lies elsewhere (W0813), or an entry of `rules.allowed` is not a
// folder (W0814).
absl::Status CheckDataPaths(const std::vector<DataPath>& paths, const DataPathRules& rules);

}  // namespace weir::job
