// Reads a message in protobuf text form from a file that anybody may have written: a cluster, a map
// of weights. A job has a reader of its own (job_file.h), which knows more of its text.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace weir::job {

struct MessageText {
  std::string name;      // of the text in errors: "cluster.textproto"
  std::string code;      // of its errors: "W0700"
  std::string expected;  // "a cluster in protobuf text form (proto/cluster.proto)"
  std::string hint;      // what to try
};

// Parses `text` into `message`, which must be empty. kInvalidArgument: the text is beyond the
// bounds of text_bounds.h, or no such message; the first errors have `of.code` and
// name:line:column, and a field that is not known has the nearest one as advice.
absl::Status ParseMessageText(const std::string& text, const MessageText& of,
                              google::protobuf::Message* message);

}  // namespace weir::job
