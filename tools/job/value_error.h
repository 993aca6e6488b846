// Says what is wrong with the value of a field in a protobuf text, and how to write the value. The
// parser of protobuf knows only the tokens: for `name: vineyard` it says "Expected string, got:
// vineyard". Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "tools/job/open_braces.h"

namespace weir::job {

struct ValueError {
  std::string expected, found;
  std::string hint;  // the field as it should be, `name: "vineyard"`, or ""
  // The whole text with the hint in its place; "" without a hint.
  std::string corrected;
};

// Returns the error at `place` of a text of message `root`, of which the parser says `message`. If
// the place has no value of a field, or the error is of another kind, returns nothing.
std::optional<ValueError> ExplainValue(absl::string_view text, TextPlace place,
                                       const std::string& message,
                                       const google::protobuf::Descriptor* root);

// Returns the message at the place, or nullptr if the text opens braces that the schema lacks.
// `types` gets the messages around it, outermost first, and the message itself.
const google::protobuf::Descriptor* MessageAt(
    const std::vector<OpenBrace>& open, const google::protobuf::Descriptor* root,
    std::vector<const google::protobuf::Descriptor*>* types);

std::vector<std::string> FieldNames(const google::protobuf::Descriptor* type);
std::vector<std::string> ValueNames(const google::protobuf::EnumDescriptor* type);

// Returns the nearest of `known`, or all of them if they are few.
std::string NearestOrAll(const std::string& word, const std::vector<std::string>& known);

}  // namespace weir::job
