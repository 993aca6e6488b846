// Reads one function of the graph of a job: its inputs, parameters and nodes. Calls inside the
// function are inlined.
//
// Thread rule: one thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "proto/graph.pb.h"
#include "proto/job.pb.h"

namespace weir::compiler {

inline constexpr int64_t kNodesMax = 1'000'000;  // of a graph, inlined calls counted
inline constexpr int64_t kCallsMax = 10'000;     // of one function, repetitions counted

using Dims = std::map<std::string, sbp::TensorDim>;

// Returns the error (W0410) for a graph whose `main` names no function.
absl::Status NoMain(const proto::Job& job);

struct InputType {
  sbp::TensorType type;
  std::optional<IndexRange> range;  // as declared
};

// Reads the type of an input, such as "i32<vocab>[batch]". `where` is for errors.
absl::StatusOr<InputType> ParseInputType(const std::string& text, const Dims& dims,
                                         const std::string& where);

// Returns the attributes of a node. `where` is for errors.
absl::StatusOr<Attributes> ImportAttributes(
    const google::protobuf::RepeatedPtrField<weir::proto::NamedAttr>& list,
    const std::string& where);

// Returns "function block", for errors.
std::string FunctionWhere(const std::string& function);

// Returns the error about `name`, which is none of the tensors `known` of a function (W0488).
absl::Status UnknownTensorToKeep(const std::string& name, const std::vector<std::string>& known,
                                 const std::string& where);

// Returns the error about `name`, which is none of the tensors `known` (W0407). `otherwise` is the
// advice if no known name is near.
absl::Status UnknownTensor(const std::string& name, const std::vector<std::string>& known,
                           const std::string& where, const std::string& expected,
                           const std::string& otherwise = "");

// The functions of a graph by name.
using GraphFunctions = std::map<std::string, const weir::proto::Function*>;

// Returns the function that `node`, a call in function `caller` at `where`, names.
absl::StatusOr<const weir::proto::Function*> CalledFunction(const GraphFunctions& functions,
                                                            const weir::proto::Node& node,
                                                            const std::string& caller,
                                                            const std::string& where);

// Returns how often a call at `where` runs its function.
absl::StatusOr<int64_t> RoundsOf(const weir::proto::Node& node, const std::string& where);

// Refuses a call that does not give `function` its inputs, or whose outputs cannot enter its next
// round.
absl::Status CheckRounds(const weir::proto::Node& node, int64_t rounds,
                         const weir::proto::Function& function, const std::string& where);

// The names of the results of a call.
std::vector<std::string> OutputsOf(const weir::proto::Node& node);

// Returns "layers.3" for round 3 of the call "layers", "layers" for its only round.
std::string RoundName(const std::string& call, int64_t rounds, int64_t round);

// Imports one function, or a range of nodes of `main` that holds no call.
class FunctionImporter {
 public:
  // `name` is that of the imported function; `graph_function` is the function of the graph that
  // holds the nodes. The arguments must outlive the importer.
  FunctionImporter(const Dims& dims, const GraphFunctions& functions, std::string graph_function,
                   std::string name);

  // Errors may also suggest `names`, which the nodes cannot read here.
  void Suggest(std::vector<std::string> names) { suggested_ = std::move(names); }

  absl::Status AddInput(const std::string& name, const InputType& type);
  // The parameter gets a weight of its own in each call.
  absl::Status AddParameter(const weir::proto::Parameter& parameter);
  // The caller gives the weight for `input`, the input of the graph's function at `index`.
  absl::Status AddWeightInput(const weir::proto::TensorDecl& input, int index, bool frozen);
  // Adds node `index` of the function, or the nodes of the function that the node calls.
  absl::Status AddNode(const weir::proto::Node& node, int index);

  absl::StatusOr<ops::ValueId> Lookup(const std::string& name, const std::string& where) const;

  // kPart: only a part of the function that the user wrote.
  enum class Extent : uint8_t { kWhole, kPart };

  // Keeps the values of `names`. A part of main has only some of these values.
  absl::Status Keep(const std::vector<std::string>& names, Extent extent, const std::string& where);

  // W0317 unless each moving average has one reader.
  absl::Status CheckAverages() const;

  Function& function() { return function_; }

 private:
  // The names that nodes of one function of the graph may use.
  struct Scope {
    const std::string& function;
    std::string prefix;  // of names in the imported function: "" or "mlp."
    std::map<std::string, ops::ValueId> names = {};
  };

  absl::Status Define(const std::string& name, ops::ValueId value, const std::string& where,
                      Scope* scope);
  absl::StatusOr<ops::ValueId> Lookup(const std::string& name, const std::string& where,
                                      const Scope& scope) const;
  absl::Status AddArg(const std::string& name, const sbp::TensorType& type, ArgKind kind,
                      std::optional<IndexRange> declared, Scope* scope);
  absl::Status AddParameter(const weir::proto::Parameter& parameter, Scope* scope);
  absl::Status AddOp(const weir::proto::Node& node, int index, Scope* scope);
  absl::Status AddNode(const weir::proto::Node& node, int index, Scope* scope);
  // Marks the average of a moving_average, `node`. W0317 unless the average is a parameter.
  absl::Status MarkAverage(const Node& node);
  absl::Status Inline(const weir::proto::Node& node, Scope* scope);
  // Adds the nodes of `called` and returns its results.
  absl::StatusOr<std::vector<ops::ValueId>> AddRound(const weir::proto::Function& called,
                                                     const std::string& prefix,
                                                     const std::vector<ops::ValueId>& inputs,
                                                     const std::string& where);

  const Dims& dims_;
  const GraphFunctions& functions_;
  std::string graph_function_;
  Function function_;
  Scope scope_;
  std::vector<std::string> suggested_;
  std::set<std::string> defined_;     // names with prefixes
  std::vector<std::string> inlined_;  // functions whose calls are being inlined, outermost first
};

}  // namespace weir::compiler
