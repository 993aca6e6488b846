// Converts classes and ways of products between their types (product.h) and their messages
// (proto/product.proto). Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/product.pb.h"
#include "runtime/base/product.h"

namespace weir {

// Both return kInvalidArgument (W0843) for a type, a size or a way that does not exist. `where`
// names the message in errors: "runtime.product".
absl::StatusOr<ProductChoice> ProductChoiceOf(const proto::ProductWayChoice& choice,
                                              const std::string& where);
absl::StatusOr<ProductChoices> ProductChoicesOf(
    const google::protobuf::RepeatedPtrField<proto::ProductWayChoice>& choices,
    const std::string& where);

proto::ProductClass ToProto(const ProductClass& product);
proto::ProductWayChoice ToProto(const ProductChoice& choice);

}  // namespace weir
