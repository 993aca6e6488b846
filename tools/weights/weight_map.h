// A WeightMap says which tensors of a public file each weight of a job comes from: the checked form
// of proto/weights.proto, which describes the parts. A map knows no mesh: a rank reads its part of
// a weight through the same map. Thread rule: immutable values; reading a file is a pure function.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/weights.pb.h"
#include "runtime/base/tensor_slice.h"
#include "tools/weights/name_pattern.h"

namespace weir::weights {

// A part of a tensor: the tensor under `view`, transposed, then cut.
struct TensorSource {
  enum class Cut : uint8_t { kNone, kPart, kRange };
  std::vector<std::string> tensors;  // the names that files give it; the first one present counts
  Shape view;                        // empty: the shape of the tensor
  std::vector<int> transpose;        // empty: as it is
  Cut cut = Cut::kNone;
  int cut_axis = 0;
  int64_t begin = 0;  // kPart: the index of the part
  int64_t size = 0;   // kPart: the number of parts; kRange: 0 is as many as the weight has
  Shape shape;        // of the tensor, for writing it; empty: it follows from the weight
};

// The sources of one weight, with whole names.
struct SourcesOfWeight {
  std::vector<TensorSource> from;
  int axis = 0;
  bool reshape = false;
};

class WeightMap {
 public:
  // kInvalidArgument (W0048): the map has no rule, a name is no pattern, a rule has no source, a
  // number is out of range, or there is more of anything than the bounds in weight_map.cc. `name`
  // names the map in errors.
  static absl::StatusOr<WeightMap> Make(const proto::WeightMap& message, const std::string& name);
  // Reads a map as protobuf text. kNotFound: no regular file. kInvalidArgument (W0048): no map.
  static absl::StatusOr<WeightMap> Read(const std::string& path);
  static absl::StatusOr<WeightMap> Parse(const std::string& text, const std::string& name);

  // The file or the built-in map, for messages.
  const std::string& name() const { return name_; }
  const proto::WeightMap& message() const { return message_; }
  // Returns the sources of a weight, or nothing if no rule is for it.
  std::optional<SourcesOfWeight> SourcesOf(const std::string& weight) const;
  bool IsFresh(const std::string& weight) const;
  // Returns whether a weight without a rule is in the file of constants.
  bool IsConstant(const std::string& weight) const;
  // Returns the names under which a file may have `tensor`: the name, and shorter ones.
  std::vector<std::string> NamesInFile(const std::string& tensor) const;
  // Returns whether a tensor of a file is one that no weight needs.
  bool IsIgnored(const std::string& name_in_file) const;
  // Returns the tensor whose bytes a tensor of a file has, or nothing if it is no alias.
  std::optional<std::string> SameAs(const std::string& name_in_file) const;

 private:
  struct Rule {
    NamePattern weight;
    std::vector<TensorSource> from;  // with names as patterns
    std::vector<std::vector<NamePattern>> tensors;
    int axis = 0;
    bool reshape = false;
  };
  struct Alias {
    NamePattern tensor, same_as;
  };

  // The names that a tensor of a file may stand for: its own, and longer ones.
  std::vector<std::string> FullNames(const std::string& name_in_file) const;

  std::string name_;
  proto::WeightMap message_;
  std::vector<Rule> rules_;
  std::map<std::string, size_t> exact_;  // rules without placeholders, by weight
  std::vector<size_t> patterns_;         // the others, in order
  std::vector<NamePattern> ignore_, fresh_, constants_;
  std::vector<Alias> aliases_;
};

}  // namespace weir::weights
