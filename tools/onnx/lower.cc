// Walks over the nodes of an ONNX graph, and folds or translates each of them.
#include <algorithm>
#include <functional>
#include <iterator>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "tools/onnx/import_model.h"
#include "tools/onnx/rewrite.h"
#include "tools/onnx/translation.h"

namespace weir::onnx {
namespace {

constexpr int kNodesMax = 200'000;     // after functions are put in the place of their calls
constexpr int kFunctionDepthMax = 16;  // of functions that call functions
constexpr int64_t kFoldedTotalMax = int64_t{1}
                                    << 26;     // elements of all folded operands and results
constexpr int64_t kCopiedBytesMax = 64 << 20;  // of nodes of functions, in the places of calls
constexpr size_t kProblemBytesMax = 900;       // a message shortens longer parts

bool IsStandard(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

absl::Status Malformed(const std::string& where, const std::string& expected,
                       const std::string& found) {
  return Rejected({"W0835", where, expected, found, "export the model again"});
}

// Puts the bodies of the functions of the file in the places of their calls.
class Inliner {
 public:
  explicit Inliner(const proto::OnnxModel& model) : graph_(model.graph()) {
    for (const proto::OnnxFunction& function : model.function())
      functions_[absl::StrCat(function.domain(), ":", function.name())] = &function;
  }

  absl::StatusOr<std::vector<proto::OnnxNode>> Run() {
    for (const proto::OnnxNode& node : graph_.node()) WEIR_RETURN_IF_ERROR(Add(node, 0));
    return std::move(nodes_);
  }

 private:
  absl::Status Add(const proto::OnnxNode& node, int depth) {
    const auto found = functions_.find(absl::StrCat(node.domain(), ":", node.op()));
    if (found == functions_.end()) {
      if (nodes_.size() >= kNodesMax)
        return Malformed("graph", absl::StrCat("at most ", kNodesMax, " nodes"), "more");
      nodes_.push_back(node);
      return absl::OkStatus();
    }
    if (depth >= kFunctionDepthMax) {
      return Malformed(absl::StrCat("function ", node.op()),
                       absl::StrCat("at most ", kFunctionDepthMax, " functions in one another"),
                       "more");
    }
    const proto::OnnxFunction& function = *found->second;
    const std::string prefix = absl::StrCat(node.op(), ".", ++calls_, ".");
    std::map<std::string, std::string> names;
    for (int i = 0; i < function.input_size(); ++i)
      names[function.input(i)] = i < node.input_size() ? node.input(i) : "";
    for (int i = 0; i < function.output_size(); ++i) {
      if (i < node.output_size() && !node.output(i).empty())
        names[function.output(i)] = node.output(i);
    }
    const auto renamed = [&](const std::string& name) {
      if (name.empty()) return name;
      return names.emplace(name, prefix + name).first->second;
    };
    for (const proto::OnnxNode& inner : function.node()) {
      copied_bytes_ += static_cast<int64_t>(inner.ByteSizeLong());
      if (copied_bytes_ > kCopiedBytesMax) {
        return Malformed(
            absl::StrCat("function ", node.op()),
            absl::StrCat("at most ", kCopiedBytesMax, " bytes of functions in the places of calls"),
            "more");
      }
      proto::OnnxNode copy = inner;
      for (std::string& name : *copy.mutable_input()) name = renamed(name);
      for (std::string& name : *copy.mutable_output()) name = renamed(name);
      copy.set_name(absl::StrCat(node.name().empty() ? node.op() : node.name(), ".", inner.name()));
      BindAttributes(node, function, &copy);
      WEIR_RETURN_IF_ERROR(Add(copy, depth + 1));
    }
    return absl::OkStatus();
  }

  // Replaces references to attributes of the function by those of the call.
  static void BindAttributes(const proto::OnnxNode& call, const proto::OnnxFunction& function,
                             proto::OnnxNode* node) {
    std::vector<proto::OnnxAttribute> kept;
    for (const proto::OnnxAttribute& attribute : node->attribute()) {
      if (attribute.reference().empty()) {
        kept.push_back(attribute);
        continue;
      }
      const auto take = [&](const auto& from) {
        for (const proto::OnnxAttribute& given : from) {
          if (given.name() != attribute.reference()) continue;
          kept.push_back(given);
          kept.back().set_name(attribute.name());
          return true;
        }
        return false;
      };
      if (!take(call.attribute())) take(function.attribute_default());
    }
    node->clear_attribute();
    for (proto::OnnxAttribute& attribute : kept) *node->add_attribute() = std::move(attribute);
  }

  const proto::OnnxGraph& graph_;
  std::map<std::string, const proto::OnnxFunction*> functions_;
  std::vector<proto::OnnxNode> nodes_;
  int calls_ = 0;
  int64_t copied_bytes_ = 0;
};

// A problem of a node, or of several nodes with one operation.
struct NodeProblem {
  std::string node;  // the first; empty: the text says the place
  std::string op;
  std::string text;
  int count = 1;
};

class Lowering {
 public:
  Lowering(const proto::OnnxModel& model, const ImportOptions& options)
      : model_(model), options_(options) {}

  absl::StatusOr<Lowered> Run() {
    WEIR_RETURN_IF_ERROR(FindOpset());
    WEIR_RETURN_IF_ERROR(AddInitializers());
    WEIR_RETURN_IF_ERROR(AddInputs());
    WEIR_ASSIGN_OR_RETURN(nodes_, Inliner(model_).Run());
    const std::vector<std::string> names = OutputNames();
    KeepNodesFor(names);
    WEIR_RETURN_IF_ERROR(AddNodes());
    if (!problems_.empty()) return NotTranslated();
    for (const std::string& name : names) {
      const auto found = operands_.find(name);
      if (found == operands_.end())
        return Malformed("graph", "a node for each output", absl::StrCat("none for ", name));
      LoweredOutput lowered;
      lowered.name = name;
      const Operand& operand = found->second;
      lowered.constant = operand.constant;
      lowered.value = operand.value;
      if (operand.constant == nullptr && operand.value < 0)
        return Malformed(absl::StrCat("output ", name), "a result of a node with a translation",
                         "another");
      lowered_.outputs.push_back(std::move(lowered));
    }
    std::vector<ValueId*> outputs;
    for (LoweredOutput& output : lowered_.outputs) outputs.push_back(&output.value);
    Simplify(&lowered_.graph, outputs);
    return std::move(lowered_);
  }

 private:
  absl::Status FindOpset() {
    for (const proto::OnnxOpset& opset : model_.opset()) {
      if (IsStandard(opset.domain())) opset_ = opset.version();
    }
    if (opset_ >= 1 && opset_ <= kNewestOpset) return absl::OkStatus();
    return Rejected({"W0833", "opset_import",
                     absl::StrCat("a version of ONNX's operations from 13 to ", kNewestOpset),
                     absl::StrCat(opset_), "export with opset_version=17"});
  }

  // Real tensors with dimensions are weights, which training changes, but for those that the caller
  // calls constants.
  absl::Status AddInitializers() {
    for (const proto::OnnxTensor& tensor : model_.graph().initializer()) {
      Operand operand;
      operand.shape.assign(tensor.dims().begin(), tensor.dims().end());
      const int64_t count = Count(operand.shape);
      const std::string where = absl::StrCat("initializer ", tensor.name());
      const bool is_known = tensor.type() > 0 && tensor.type() <= 16;
      operand.element = is_known ? static_cast<Element>(tensor.type()) : Element::kUndefined;
      if (IsReal(operand.element) && count > 0 && !operand.shape.empty() &&
          !IsConstant(tensor.name())) {
        operand.weight = &tensor;
      } else {
        WEIR_ASSIGN_OR_RETURN(Tensor known,
                              Decode(tensor, options_.files, kFoldedElementsMax, where));
        WEIR_RETURN_IF_ERROR(Charge(known.size()));
        operand.constant = std::make_shared<const Tensor>(std::move(known));
      }
      if (!operands_.emplace(tensor.name(), std::move(operand)).second)
        return Malformed(where, "each tensor once", "the name twice");
    }
    WEIR_RETURN_IF_ERROR(CheckNames("--constant", options_.constants));
    return CheckNames("--freeze", options_.frozen);
  }

  // Checks that each name or pattern of the caller's is that of an initializer.
  absl::Status CheckNames(const std::string& flag, const std::vector<std::string>& patterns) const {
    std::vector<std::string> names;
    for (const proto::OnnxTensor& tensor : model_.graph().initializer())
      names.push_back(tensor.name());
    for (const std::string& pattern : patterns) {
      if (std::any_of(names.begin(), names.end(),
                      [&](const std::string& name) { return Names(pattern, name); }))
        continue;
      const std::string nearest = Nearest(pattern, names);
      return Rejected({"W0837", absl::StrCat(flag, " ", pattern),
                       "the name of an initializer, or the beginning of names and *",
                       absl::StrCat("none of that name among ", names.size(), " initializers"),
                       nearest.empty() ? "" : absl::StrCat(flag, " ", nearest)});
    }
    return absl::OkStatus();
  }

  bool IsConstant(const std::string& name) const {
    return std::any_of(options_.constants.begin(), options_.constants.end(),
                       [&](const std::string& pattern) { return Names(pattern, name); });
  }

  absl::Status AddInputs() {
    std::set<std::string> open, known;  // known: what --dim may name
    for (const proto::OnnxValue& input : model_.graph().input()) {
      if (operands_.count(input.name()) > 0) continue;  // a weight with a default
      const std::string where = absl::StrCat("input ", input.name());
      if (!input.type().has_tensor() || !input.type().tensor().has_shape())
        return Rejected({"W0833", where, "a tensor with a shape",
                         "another kind of value, or no shape",
                         "export the model with tensors as inputs"});
      const proto::OnnxTensorType& type = input.type().tensor();
      Operand operand;
      operand.element = type.element() > 0 && type.element() <= 16
                            ? static_cast<Element>(type.element())
                            : Element::kUndefined;
      std::vector<std::string> names;
      if (type.shape().dim_size() > static_cast<int>(kRankMax))
        return Malformed(where, absl::StrCat("at most ", kRankMax, " dimensions"), "more");
      for (int d = 0; d < type.shape().dim_size(); ++d) {
        const proto::OnnxDim& dim = type.shape().dim(d);
        const std::string place = absl::StrCat(input.name(), "[", d, "]");
        known.insert(place);
        if (!dim.symbol().empty()) known.insert(dim.symbol());
        auto given = options_.dims.find(place);
        if (given == options_.dims.end() && !dim.symbol().empty())
          given = options_.dims.find(dim.symbol());
        const bool is_given = given != options_.dims.end();
        if (is_given) used_.insert(given->first);
        const int64_t size = is_given ? given->second : dim.size();
        if (size < 1 && !is_given && dim.kind_case() != proto::OnnxDim::kSize) {
          open.insert(dim.symbol().empty() ? place : dim.symbol());
        } else if (size < 1 || size > (int64_t{1} << 40)) {
          return Rejected({"W0834", where, "sizes from 1 to 2^40",
                           absl::StrCat("dimension ", d, " of size ", size),
                           absl::StrCat("--dim \"", place, "=8\"")});
        }
        operand.shape.push_back(std::max<int64_t>(size, 1));
        names.push_back(NameOf(dim.symbol(), operand.shape.back()));
      }
      if (IsReal(operand.element)) {
        operand.value = lowered_.graph.AddInput(input.name(), DType::kF32, operand.shape, names);
      } else if (operand.element == Element::kBool) {
        operand.value = lowered_.graph.AddInput(input.name(), DType::kBool, operand.shape, names);
      } else if (operand.element == Element::kI64 || operand.element == Element::kI32) {
        operand.value = lowered_.graph.AddInput(input.name(), DType::kI32, operand.shape, names);
      } else {
        unusable_.emplace(
            input.name(),
            absl::StrCat("input ", input.name(), " has the type ", Name(operand.element),
                         "; Weir has inputs of real numbers, i32, i64 and bool"));
        operand.failed = true;
      }
      if (!operands_.emplace(input.name(), std::move(operand)).second)
        return Malformed(where, "each tensor once", "the name twice");
    }
    for (const auto& [name, problem] : unusable_) AddProblem("", name, problem);
    for (const auto& [name, size] : options_.dims) {
      if (used_.count(name) > 0) continue;
      constexpr size_t kNamesMax = 8;
      const size_t shown = std::min(known.size(), kNamesMax);
      const std::string nearest = Nearest(name, known);
      return Rejected(
          {"W0834", absl::StrCat("--dim ", name), "a dimension of an input of the model",
           absl::StrCat("none of that name; the model has ",
                        absl::StrJoin(known.begin(), std::next(known.begin(), shown), ", "),
                        shown < known.size() ? " and more" : ""),
           nearest.empty() ? "" : absl::StrCat("--dim \"", nearest, "=8\"")});
    }
    if (open.empty()) return absl::OkStatus();
    std::vector<std::string> flags;
    for (const std::string& name : open) flags.push_back(absl::StrCat("--dim \"", name, "=8\""));
    return Rejected({"W0834", "inputs of the model", "a size for every dimension",
                     absl::StrCat("none for ", absl::StrJoin(open, ", ")),
                     absl::StrJoin(flags, " ")});
  }

  // Returns the name of a dimension with a symbol. A symbol with two sizes names nothing.
  std::string NameOf(const std::string& symbol, int64_t size) {
    const std::string plain = PlainName(symbol);
    if (plain.empty() || plain[0] == '_' || (plain[0] >= '0' && plain[0] <= '9')) return "";
    return symbols_.emplace(plain, size).first->second == size ? plain : "";
  }

  static std::string NameOfNode(const proto::OnnxNode& node, size_t place) {
    if (!node.name().empty()) return node.name();
    for (const std::string& output : node.output()) {
      if (!output.empty()) return output;
    }
    return absl::StrCat("node ", place);
  }

  // Returns the one tensor that the options ask for, if the graph computes it; else the outputs of
  // the graph.
  std::vector<std::string> OutputNames() const {
    for (const proto::OnnxNode& node : nodes_) {
      if (options_.output.empty()) break;
      if (std::count(node.output().begin(), node.output().end(), options_.output) > 0)
        return {options_.output};
    }
    std::vector<std::string> names;
    for (const proto::OnnxValue& output : model_.graph().output()) names.push_back(output.name());
    return names;
  }

  // Drops the nodes that none of the outputs needs.
  void KeepNodesFor(const std::vector<std::string>& outputs) {
    if (options_.output.empty()) return;
    std::set<std::string> needed(outputs.begin(), outputs.end());
    std::vector<proto::OnnxNode> kept;
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      const auto& made = node->output();
      if (std::none_of(made.begin(), made.end(),
                       [&](const std::string& name) { return needed.count(name) > 0; })) {
        continue;
      }
      needed.insert(node->input().begin(), node->input().end());
      kept.push_back(std::move(*node));
    }
    nodes_.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  }

  // The nodes of a file are sorted: each reads what stands before it. So a cycle is a name without
  // a tensor.
  absl::Status AddNodes() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const proto::OnnxNode& node = nodes_[i];
      const std::string name = NameOfNode(node, i);
      std::vector<Operand*> inputs;
      bool depends_on_failure = false;
      for (const std::string& input : node.input()) {
        if (input.empty()) {
          inputs.push_back(nullptr);
          continue;
        }
        const auto found = operands_.find(input);
        if (found == operands_.end()) {
          return Malformed(absl::StrCat("node ", name), "operands that stand before the node",
                           absl::StrCat("\"", input, "\""));
        }
        depends_on_failure = depends_on_failure || found->second.failed;
        if (unexplained_.erase(input) > 0)
          AddProblem(name, node.op(),
                     absl::StrCat("\"", input, "\" is a result that Weir has no translation of"));
        inputs.push_back(&found->second);
      }
      Translation t(node, name, opset_, std::move(inputs), &lowered_.graph);
      const Row* row = IsStandard(node.domain()) ? FindRow(node.op()) : nullptr;
      if (!depends_on_failure || row == nullptr) Translate(t, row, name);
      WEIR_RETURN_IF_ERROR(over_);
      if (lowered_.graph.constant_elements > kFoldedTotalMax) return TooManyConstants();
      for (int k = 0; k < node.output_size(); ++k) {
        if (node.output(k).empty()) continue;
        Operand& result = t.results()[k];
        if (result.constant != nullptr) WEIR_RETURN_IF_ERROR(Charge(result.constant->size()));
        if (result.failed && t.ok() && !depends_on_failure) unexplained_.insert(node.output(k));
        if (!operands_.emplace(node.output(k), std::move(result)).second)
          return Malformed(absl::StrCat("node ", name), "each tensor once",
                           absl::StrCat("\"", node.output(k), "\" again"));
      }
    }
    return absl::OkStatus();
  }

  void Translate(Translation& t, const Row* row, const std::string& name) {
    const proto::OnnxNode& node = t.node();
    bool failed_operand = false, known = true;
    int64_t read = 0;
    for (int i = 0; i < t.num_inputs(); ++i) {
      if (!t.Has(i)) continue;
      failed_operand = failed_operand || t.input(i).failed;
      known = known && t.input(i).constant != nullptr;
      if (t.input(i).constant != nullptr) read += t.input(i).constant->size();
    }
    if (known) over_ = Charge(read);
    const bool folded = over_.ok() && !failed_operand && IsStandard(node.domain()) && Fold(t);
    if (!folded && row == nullptr) {
      t.Fail(known && t.num_inputs() > 0 ? "Weir does not compute the operation with constants"
                                         : "Weir has no translation of the operation");
    } else if (!folded && !failed_operand && opset_ < row->since) {
      t.Fail(absl::StrCat("the meaning in version ", opset_,
                          " of ONNX's operations; Weir knows that from version ", row->since,
                          " on. Export with opset_version=17"));
    } else if (!folded && !failed_operand) {
      row->translate(t);
    }
    if (t.ok()) return;
    AddProblem(name, absl::StrCat(IsStandard(node.domain()) ? "" : node.domain() + ".", node.op()),
               t.problem());
  }

  absl::Status Charge(int64_t elements) {
    folded_ += elements;
    return folded_ <= kFoldedTotalMax ? absl::OkStatus() : TooManyConstants();
  }

  static absl::Status TooManyConstants() {
    return Rejected(
        {"W0835", "graph",
         absl::StrCat("at most ", kFoldedTotalMax, " elements of constants in all"), "more",
         "export the model with smaller sizes, or keep large constants as initializers"});
  }

  // Lists the problems, with nodes of one operation and one problem together, up to the length that
  // a message may have.
  absl::Status NotTranslated() const {
    std::string list;
    size_t listed = 0;
    for (const NodeProblem& problem : problems_) {
      std::string text = problem.text;
      if (!problem.node.empty()) {
        const std::string more =
            problem.count > 1 ? absl::StrCat(" and ", problem.count - 1, " more") : "";
        text = absl::StrCat("node ", problem.node, more, " (", problem.op, "): ", problem.text);
      }
      if (listed > 0 && list.size() + text.size() > kProblemBytesMax) break;
      absl::StrAppend(&list, listed == 0 ? "" : "; ", text);
      ++listed;
    }
    if (listed < problems_.size())
      absl::StrAppend(&list, "; and ", problems_.size() - listed, " other problems");
    return Rejected({"W0833", "graph", "nodes that Weir has operations for", list,
                     "`weir ops` for what Weir has; export with opset_version=17, or change these "
                     "parts of the model"});
  }

  void AddProblem(const std::string& node, const std::string& op, const std::string& text) {
    const auto [place, is_new] = places_.emplace(absl::StrCat(op, ": ", text), problems_.size());
    if (is_new)
      problems_.push_back({node, op, text});
    else
      ++problems_[place->second].count;
  }

  const proto::OnnxModel& model_;
  const ImportOptions& options_;
  int64_t opset_ = 0;
  Lowered lowered_;
  std::map<std::string, Operand> operands_;  // by name; places do not move
  std::map<std::string, std::string> unusable_;
  std::map<std::string, int64_t> symbols_;
  std::set<std::string> used_;
  std::set<std::string> unexplained_;  // results of nodes whose other results have translations
  std::vector<proto::OnnxNode> nodes_;
  std::vector<NodeProblem> problems_;
  std::map<std::string, size_t> places_;  // of problems, by operation and text
  int64_t folded_ = 0;
  absl::Status over_;
};

}  // namespace

bool Names(const std::string& pattern, const std::string& name) {
  return absl::EndsWith(pattern, "*")
             ? absl::StartsWith(name, pattern.substr(0, pattern.size() - 1))
             : name == pattern;
}

absl::StatusOr<Lowered> Lower(const proto::OnnxModel& model, const ImportOptions& options) {
  return Lowering(model, options).Run();
}

}  // namespace weir::onnx
