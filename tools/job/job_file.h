// Reads a job as protobuf text, and applies changes from the command line (`--set
// training.steps=10`, `--mesh dp=2,tp=2`). Every error has a place and the nearest legal name. The
// compiler decides the meaning of the job.
// Thread rule: pure functions, except for reading the file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir::job {

inline constexpr int64_t kJobBytesMax = 64 << 20;

// Reads and parses `path` ("-": standard input, until its end). kNotFound: there is no file, or no
// regular file. A pipe must be named "-", so that a read never waits for a writer that may never
// come. kInvalidArgument: the file is larger than kJobBytesMax, beyond the bounds of text_bounds.h,
// or not a job (the first errors with path:line:column).
absl::StatusOr<proto::Job> ReadJobFile(const std::string& path);
// The two halves of ReadJobFile. ReadJobText returns at most a little more than kJobBytesMax of the
// text, and ParseJob parses a text. `name` stands for the path in errors (JobName).
absl::StatusOr<std::string> ReadJobText(const std::string& path);
absl::StatusOr<proto::Job> ParseJob(const std::string& text, const std::string& name);
// Returns the name that errors use for the file `path`.
std::string JobName(const std::string& path);

// Applies "path=value". A path is field names joined by dots. A number, or the value of the field
// `name`, chooses an element of a list: "graph.dim[hidden].size=256", "rule[0].axis=tp". A list
// field without brackets appends. Values are protobuf text of at most kTextStringBytesMax. Strings
// need no quotes, and enum values may be in lower case.
absl::Status SetField(const std::string& assignment, proto::Job* job);

// Returns the place of an assignment for errors: "--set graph.dim[hidden].size=256". A long value
// is cut off.
std::string SetFlag(const std::string& assignment);

// Replaces the axes of the mesh by `text`, "dp=2,tp=2"; "" is the mesh of one device. Drops
// mesh.rank_order if it does not name the new axes.
absl::Status SetMesh(const std::string& text, proto::Job* job);

}  // namespace weir::job
