// Reads what a user wrote: a job as protobuf text, changes to it from the command line
// (`--set training.steps=10`, `--mesh dp=2,tp=2`). Every error has a place and the
// nearest legal name. What the job means is the compiler's business.
// Thread rule: pure functions, but for reading the file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir {

inline constexpr int64_t kJobBytesMax = 64 << 20;

// Reads and parses `path` ("-": standard input, until its end). kNotFound: no file, or none that is
// regular: a pipe is named "-", so that nothing waits for who may never write. kInvalidArgument:
// larger than kJobBytesMax, beyond the bounds of text_bounds.h, or not a job (the first errors with
// path:line:column).
absl::StatusOr<Job> ReadJobFile(const std::string& path);
// The two halves of it: the text, at most a little more than kJobBytesMax of it, and what it says.
// `name` stands for the path in errors (JobName).
absl::StatusOr<std::string> ReadJobText(const std::string& path);
absl::StatusOr<Job> ParseJob(const std::string& text, const std::string& name);
// The name that errors use for the file `path`.
std::string JobName(const std::string& path);

// Applies "path=value". A path is field names joined by dots; an element of a list is
// chosen by number or by the value of its field `name`: "graph.dim[hidden].size=256",
// "rule[0].axis=tp". A list field without brackets appends. Values are protobuf
// text of at most kTextStringBytesMax; strings need no quotes, enum values may be in lower case.
absl::Status SetField(const std::string& assignment, Job* job);

// Replaces the mesh by `text`, "dp=2,tp=2"; "" is the mesh of one device.
absl::Status SetMesh(const std::string& text, Job* job);

}  // namespace weir
