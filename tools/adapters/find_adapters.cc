#include "tools/adapters/find_adapters.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/job/import_function.h"
#include "runtime/base/status.h"
#include "tools/adapters/graph_weights.h"
#include "tools/weights/adapter_names.h"

namespace weir::adapters {
namespace {

using weights::kAdapterA;
using weights::kAdapterB;

// How the nodes of a function use the adapters of one of its parameters.
struct Form {
  double factor = 1;
  bool is_transposed = false;
};

bool operator==(const Form& a, const Form& b) {
  return a.factor == b.factor && a.is_transposed == b.is_transposed;
}

std::string ResultOf(const proto::Node& node) {
  return node.output_size() > 0 ? node.output(0) : node.name();
}

class FormReader {
 public:
  explicit FormReader(const proto::Function& function) {
    for (const proto::Node& node : function.node()) {
      for (const std::string& input : node.input()) readers_[input].push_back(&node);
      for (const std::string& input : node.shared()) readers_[input].push_back(&node);
      made_by_[ResultOf(node)] = &node;
    }
    for (const std::string& output : function.output()) outputs_.insert(output);
  }

  // Returns the form in which every product of `weight` has adapters; nothing: there is another use
  // of the weight or of an adapter.
  std::optional<Form> FormOf(const std::string& weight) const {
    const std::vector<const proto::Node*> down = ReadersOf(absl::StrCat(weight, kAdapterA));
    const std::string b = absl::StrCat(weight, kAdapterB);
    if (down.empty() || down.size() != ReadersOf(weight).size() ||
        down.size() != ReadersOf(b).size())
      return std::nullopt;
    std::optional<Form> form;
    std::set<const proto::Node*> products;  // of the weight
    for (const proto::Node* node : down) {
      const std::optional<Form> found = FormOfPath(*node, weight, b, &products);
      if (!found.has_value() || (form.has_value() && !(*form == *found))) return std::nullopt;
      form = found;
    }
    if (products.size() != down.size()) return std::nullopt;
    return form;
  }

 private:
  std::vector<const proto::Node*> ReadersOf(const std::string& tensor) const {
    const auto found = readers_.find(tensor);
    return found == readers_.end() ? std::vector<const proto::Node*>() : found->second;
  }

  // Returns the only reader of the result of `node`; null: there are others.
  const proto::Node* OnlyReader(const proto::Node& node) const {
    const std::vector<const proto::Node*> readers = ReadersOf(ResultOf(node));
    const bool is_output = outputs_.count(ResultOf(node)) > 0;
    return readers.size() == 1 && !is_output && node.output_size() <= 1 ? readers[0] : nullptr;
  }

  static bool Multiplies(const proto::Node& node, const std::string& weight) {
    return node.op() == "matmul" && node.input_size() >= 2 && node.input(1) == weight &&
           node.input(0) != weight;
  }
  static bool IsPlain(const proto::Node& product) {
    const proto::Attr* const activation = AttrOf(product, "activation");
    return activation == nullptr || activation->s() == "none";
  }

  // Follows a path from its product with A to the sum with the product of the weight.
  std::optional<Form> FormOfPath(const proto::Node& down, const std::string& weight,
                                 const std::string& b,
                                 std::set<const proto::Node*>* products) const {
    if (!Multiplies(down, absl::StrCat(weight, kAdapterA)) || down.input_size() != 2 ||
        !IsPlain(down))
      return std::nullopt;
    Form form;
    form.is_transposed = IsTransposed(down);
    const proto::Node* next = OnlyReader(down);
    if (next != nullptr && next->op() == "scale") {
      const proto::Attr* const factor = AttrOf(*next, "factor");
      if (factor == nullptr) return std::nullopt;
      form.factor =
          factor->value_case() == proto::Attr::kI ? static_cast<double>(factor->i()) : factor->f();
      next = OnlyReader(*next);
    }
    if (next == nullptr || !Multiplies(*next, b) || next->input_size() != 2 || !IsPlain(*next) ||
        IsTransposed(*next) != form.is_transposed)
      return std::nullopt;
    const proto::Node* const sum = OnlyReader(*next);
    if (sum == nullptr || sum->op() != "add" || sum->input_size() != 2) return std::nullopt;
    const std::string up = ResultOf(*next);
    const auto base = made_by_.find(sum->input(sum->input(0) == up ? 1 : 0));
    if (base == made_by_.end()) return std::nullopt;
    const proto::Node& product = *base->second;
    if (!Multiplies(product, weight) || !IsPlain(product) || OnlyReader(product) != sum ||
        product.input(0) != down.input(0) || IsTransposed(product) != form.is_transposed)
      return std::nullopt;
    products->insert(&product);
    return form;
  }

  std::map<std::string, std::vector<const proto::Node*>> readers_;
  std::map<std::string, const proto::Node*> made_by_;
  std::set<std::string> outputs_;
};

}  // namespace

absl::StatusOr<std::vector<Adapter>> FindAdapters(const proto::Graph& graph) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<GraphWeight> all, WeightsOfGraph(graph));
  std::set<std::string> names;
  for (const GraphWeight& weight : all) names.insert(weight.name);
  std::map<int, FormReader> readers;
  std::vector<Adapter> found;
  for (const GraphWeight& weight : all) {
    const std::string a = absl::StrCat(weight.name, kAdapterA);
    if (!weights::IsAdapter(a, names)) continue;
    const proto::Function& function = graph.function(weight.function);
    const std::string& parameter = function.parameter(weight.parameter).name();
    const auto reader = readers.try_emplace(weight.function, function).first;
    const std::optional<Form> form = reader->second.FormOf(parameter);
    if (!form.has_value()) {
      return Rejected(
          {"W0852",
           absl::StrCat(compiler::FunctionWhere(function.name()), ", parameter ", parameter),
           absl::StrCat("adapters in the form of `weir lora add`: the sum of a product with ",
                        parameter, " and of one with ", parameter, kAdapterA,
                        ", an optional scale and one with ", parameter, kAdapterB),
           "another use of them", "other names for parameters that are no adapters"});
    }
    found.push_back(
        {weight.name, a, absl::StrCat(weight.name, kAdapterB), form->factor, form->is_transposed});
  }
  return found;
}

}  // namespace weir::adapters
