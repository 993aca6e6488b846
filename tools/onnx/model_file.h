// Reads files of ONNX into messages, and checks their size before anything is parsed: a few bytes
// of such a file can ask for a message of hundreds of bytes, and files come from strangers. Not
// here: what a model means. Thread rule: pure functions, except for reading the file.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/onnx.pb.h"

namespace weir::onnx {

// The elements of tensors (fields of bytes and of reals) count apart from the rest of a file.
inline constexpr int64_t kModelBytesMax =
    (int64_t{1} << 31) - 1;                              // of a file; what protobuf can hold
inline constexpr int64_t kStructureBytesMax = 64 << 20;  // all else
inline constexpr int64_t kMessagesMax = 2'000'000;
inline constexpr int kDepthMax = 60;  // of messages in messages

// Reads the file `path`. kNotFound (W0040): there is no regular file. kInvalidArgument (W0830): the
// file is beyond the bounds above, or is not a model of ONNX.
absl::StatusOr<proto::OnnxModel> ReadModelFile(const std::string& path);

// Parses the bytes of a file, called `name` in errors.
absl::StatusOr<proto::OnnxModel> ParseModel(absl::string_view bytes, const std::string& name);
// The same for a file of one tensor.
absl::StatusOr<proto::OnnxTensor> ParseTensor(absl::string_view bytes, const std::string& name);

}  // namespace weir::onnx
