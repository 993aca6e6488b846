#include "tools/adapters/add_adapters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/dims/dim_lists.h"
#include "compiler/job/import_function.h"
#include "compiler/job/import_graph.h"
#include "ops/defs/type_text.h"
#include "runtime/base/name_pattern.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/adapters/graph_weights.h"
#include "tools/weights/adapter_names.h"

namespace weir::adapters {
namespace {

using compiler::FunctionWhere;
using weights::kAdapterA;
using weights::kAdapterB;

constexpr char kRankDim[] = "lora_rank";
constexpr char kProduct[] = "matmul";
constexpr int kWeightOperand = 1;  // of a product

// A parameter of a function, its weights, and what stands against adapters for it.
struct Candidate {
  int function = 0, parameter = 0;
  std::vector<std::string> weights;  // of all calls
  std::vector<int> products;         // the nodes that multiply with it
  std::string obstacle;              // empty: it can have adapters
  int64_t in = 0, out = 0;
  int64_t elements = 0;
  bool is_transposed = false;  // [out, in]
  bool was_frozen = false;
  bool adapted = false, trained = false;
};

bool Fits(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return FitsPattern(name, pattern, Wildcards::kStarAndQuestionMark);
  });
}

std::string NodeText(const proto::Node& node) {
  const std::string name = !node.name().empty()     ? node.name()
                           : node.output_size() > 0 ? node.output(0)
                                                    : node.op();
  return absl::StrCat("node ", name, " (", node.op(), ")");
}

// Finds the products of a parameter, or what stands against adapters.
void FindUses(const proto::Function& function, Candidate* candidate) {
  const std::string& name = function.parameter(candidate->parameter).name();
  for (int n = 0; n < function.node_size(); ++n) {
    const proto::Node& node = function.node(n);
    for (int i = 0; i < node.input_size(); ++i) {
      if (node.input(i) != name) continue;
      if (node.op() != kProduct || i != kWeightOperand) {
        candidate->obstacle = absl::StrCat("which ", NodeText(node), " reads");
      } else if (!candidate->products.empty() && candidate->is_transposed != IsTransposed(node)) {
        candidate->obstacle = "which one product transposes and another does not";
      } else {
        candidate->is_transposed = IsTransposed(node);
        candidate->products.push_back(n);
      }
    }
    if (std::count(node.shared().begin(), node.shared().end(), name) > 0)
      candidate->obstacle = absl::StrCat("which ", NodeText(node), " reads");
  }
  if (candidate->products.empty() && candidate->obstacle.empty())
    candidate->obstacle = "with which no matmul multiplies";
}

class AdapterWriter {
 public:
  AdapterWriter(const AdapterOptions& options, const proto::Job& job)
      : options_(options), job_(job) {}

  absl::StatusOr<AddedAdapters> Run(proto::Job* job) {
    WEIR_RETURN_IF_ERROR(CheckOptions());
    WEIR_RETURN_IF_ERROR(FindCandidates());
    WEIR_RETURN_IF_ERROR(Choose());
    for (const Candidate& candidate : candidates_) {
      if (candidate.adapted) WEIR_RETURN_IF_ERROR(CheckRank(candidate));
    }
    Edit();
    *job = std::move(job_);
    return Count();
  }

 private:
  proto::Graph& graph() { return *job_.mutable_graph(); }
  proto::Parameter& parameter(const Candidate& candidate) {
    return *graph().mutable_function(candidate.function)->mutable_parameter(candidate.parameter);
  }
  double factor() const {
    return options_.alpha == 0 ? 1 : options_.alpha / static_cast<double>(options_.rank);
  }

  absl::Status CheckOptions() const {
    if (options_.rank < 1)
      return Rejected({"W0851", "rank of adapters", "at least 1", absl::StrCat(options_.rank), ""});
    if (std::isfinite(options_.alpha) && options_.alpha >= 0) return absl::OkStatus();
    return Rejected({"W0851", "alpha of adapters", "a finite number above 0",
                     absl::StrCat(options_.alpha), absl::StrCat(options_.rank)});
  }

  absl::Status FindCandidates() {
    WEIR_ASSIGN_OR_RETURN(const std::vector<GraphWeight> all, WeightsOfGraph(graph()));
    std::map<std::pair<int, int>, size_t> place;
    std::set<std::string> names;
    for (const GraphWeight& weight : all) {
      const auto [known, is_new] =
          place.emplace(std::pair(weight.function, weight.parameter), candidates_.size());
      if (is_new) {
        candidates_.push_back({});
        candidates_.back().function = weight.function;
        candidates_.back().parameter = weight.parameter;
      }
      candidates_[known->second].weights.push_back(weight.name);
      names.insert(weight.name);
    }
    for (const std::string& name : names) {
      if (!weights::IsAdapter(name, names)) continue;
      return Rejected({"W0852", "graph", "a job without adapters", absl::StrCat("weight ", name),
                       "the job that this job was made of"});
    }
    WEIR_ASSIGN_OR_RETURN(const compiler::Dims dims, compiler::ImportDimTable(job_));
    for (Candidate& candidate : candidates_) {
      const std::string where = FunctionWhere(graph().function(candidate.function).name());
      const absl::StatusOr<sbp::TensorType> type =
          ops::ParseType(parameter(candidate).type(), dims);
      if (!type.ok()) return At(where, type.status());
      candidate.elements = type->num_elements();
      candidate.was_frozen = parameter(candidate).frozen();
      FindUses(graph().function(candidate.function), &candidate);
      if (type->dims.size() != 2) {
        candidate.obstacle = absl::StrCat(
            "which has ", Plural(static_cast<int64_t>(type->dims.size()), "dimension"));
      }
      if (!candidate.obstacle.empty()) continue;
      candidate.in = type->dims[0].size;
      candidate.out = type->dims[1].size;
      if (candidate.is_transposed) std::swap(candidate.in, candidate.out);
    }
    return absl::OkStatus();
  }

  std::vector<std::string> WeightNames() const {
    std::vector<std::string> names;
    for (const Candidate& candidate : candidates_)
      names.insert(names.end(), candidate.weights.begin(), candidate.weights.end());
    return names;
  }

  // Returns the names of a few weights that can have adapters.
  std::string SomeThatCan() const {
    constexpr size_t kShown = 6;
    std::vector<std::string> names;
    for (const Candidate& candidate : candidates_) {
      if (candidate.obstacle.empty()) names.push_back(candidate.weights.front());
    }
    if (names.empty()) return "none of the job";
    std::string text;
    for (size_t i = 0; i < names.size() && i < kShown; ++i)
      absl::StrAppend(&text, i == 0 ? "" : ", ", names[i]);
    if (names.size() > kShown) absl::StrAppend(&text, " and ", names.size() - kShown, " more");
    return text;
  }

  // Checks that weights fit `pattern`, and returns those parameters.
  absl::StatusOr<std::vector<const Candidate*>> Fitting(const std::string& flag,
                                                        const std::string& pattern) const {
    std::vector<const Candidate*> fitting;
    for (const Candidate& candidate : candidates_) {
      if (std::any_of(candidate.weights.begin(), candidate.weights.end(),
                      [&](const std::string& name) { return Fits(name, {pattern}); }))
        fitting.push_back(&candidate);
    }
    if (!fitting.empty()) return fitting;
    const std::string near = Nearest(pattern, WeightNames());
    return Rejected({"W0850", absl::StrCat(flag, " ", pattern), "a pattern that a weight fits",
                     "a pattern that no weight fits",
                     near.empty() ? absl::StrCat("a pattern for some of these: ", SomeThatCan())
                                  : absl::StrCat(flag, " ", near)});
  }

  // Returns whether all weights of a parameter fit one of the patterns. It is an error if only some
  // do: one function serves all of them.
  absl::StatusOr<bool> AllFit(const Candidate& candidate, const std::string& flag,
                              const std::vector<std::string>& patterns) const {
    std::string fits, other;
    for (const std::string& name : candidate.weights) (Fits(name, patterns) ? fits : other) = name;
    if (fits.empty() || other.empty()) return other.empty();
    const std::string& function = job_.graph().function(candidate.function).name();
    const std::string& parameter =
        job_.graph().function(candidate.function).parameter(candidate.parameter).name();
    return Rejected(
        {"W0850", flag,
         absl::StrCat("patterns that all ", candidate.weights.size(), " weights of parameter ",
                      parameter, " of function ", function, " fit, or none"),
         absl::StrCat("patterns that ", fits, " fits and ", other, " does not"),
         absl::StrCat(
             flag, " \"*.", parameter,
             "\"; a training.group with frozen: true then leaves some calls as they are")});
  }

  absl::Status Choose() {
    for (const std::string& pattern : options_.on) {
      WEIR_ASSIGN_OR_RETURN(const std::vector<const Candidate*> fitting, Fitting("--on", pattern));
      if (std::any_of(fitting.begin(), fitting.end(),
                      [](const Candidate* one) { return one->obstacle.empty(); }))
        continue;
      return Rejected(
          {"W0851", absl::StrCat("--on ", pattern),
           "a weight of two dimensions that only products (matmul) read",
           absl::StrCat(fitting.front()->weights.front(), ", ", fitting.front()->obstacle),
           absl::StrCat("a pattern for some of these: ", SomeThatCan())});
    }
    for (const std::string& pattern : options_.train)
      WEIR_RETURN_IF_ERROR(Fitting("--train", pattern).status());
    bool any = false;
    for (Candidate& candidate : candidates_) {
      if (candidate.obstacle.empty()) {
        candidate.adapted = options_.on.empty() && options_.rank <= SmallerOf(candidate);
        if (!options_.on.empty()) {
          WEIR_ASSIGN_OR_RETURN(candidate.adapted, AllFit(candidate, "--on", options_.on));
        }
        any = any || candidate.adapted;
      }
      WEIR_ASSIGN_OR_RETURN(const bool named, AllFit(candidate, "--train", options_.train));
      candidate.trained = named && !candidate.adapted && !candidate.was_frozen;
    }
    if (any) return absl::OkStatus();
    for (const Candidate& candidate : candidates_) {
      if (candidate.obstacle.empty()) return CheckRank(candidate);
    }
    return Rejected({"W0851", "graph", "weights of two dimensions that only products (matmul) read",
                     "none", ""});
  }

  static int64_t SmallerOf(const Candidate& candidate) {
    return std::min(candidate.in, candidate.out);
  }

  absl::Status CheckRank(const Candidate& candidate) const {
    const int64_t smaller = SmallerOf(candidate);
    if (options_.rank <= smaller) return absl::OkStatus();
    return Rejected(
        {"W0851", absl::StrCat("--rank ", options_.rank),
         absl::StrCat("at most ", smaller, ", the smaller dimension of ", candidate.weights.front(),
                      " [", candidate.in, ", ", candidate.out, "]"),
         absl::StrCat(options_.rank), "a smaller rank, or --on with patterns of larger weights"});
  }

  void Edit() {
    for (proto::Function& function : *graph().mutable_function()) {
      for (proto::Parameter& one : *function.mutable_parameter()) one.set_frozen(true);
    }
    for (const Candidate& candidate : candidates_) {
      if (candidate.trained) parameter(candidate).set_frozen(false);
    }
    AddRankDim();
    std::map<int, std::vector<const Candidate*>> by_function;
    for (const Candidate& candidate : candidates_) {
      if (candidate.adapted) by_function[candidate.function].push_back(&candidate);
    }
    for (const auto& [f, adapted] : by_function) {
      AddProducts(graph().mutable_function(f), adapted);
      AddParameters(graph().mutable_function(f), adapted);
    }
  }

  void AddRankDim() {
    const auto is_taken = [&](const std::string& name) {
      return std::any_of(graph().dim().begin(), graph().dim().end(),
                         [&](const proto::Dim& dim) { return dim.name() == name; });
    };
    rank_dim_ = kRankDim;
    for (int n = 2; is_taken(rank_dim_); ++n) rank_dim_ = absl::StrCat(kRankDim, "_", n);
    proto::Dim* dim = graph().add_dim();
    dim->set_name(rank_dim_);
    dim->set_size(options_.rank);
  }

  // Puts the adapters of a parameter behind it.
  void AddParameters(proto::Function* function, const std::vector<const Candidate*>& adapted) {
    std::vector<proto::Parameter> parameters;
    for (int p = 0; p < function->parameter_size(); ++p) {
      parameters.push_back(function->parameter(p));
      for (const Candidate* candidate : adapted) {
        if (candidate->parameter != p) continue;
        const std::vector<std::string> dims =
            absl::StrSplit(compiler::DimsOf(function->parameter(p).type()), ',');
        const bool is_transposed = candidate->is_transposed;
        const std::string in(absl::StripAsciiWhitespace(dims[is_transposed ? 1 : 0]));
        const std::string out(absl::StripAsciiWhitespace(dims[is_transposed ? 0 : 1]));
        const auto add = [&](const char* ending, std::string first, std::string second) {
          proto::Parameter added;
          added.set_name(absl::StrCat(function->parameter(p).name(), ending));
          if (is_transposed) std::swap(first, second);
          added.set_type(absl::StrCat("f32[", first, ", ", second, "]"));
          added.set_decay(true);
          parameters.push_back(std::move(added));
          return &parameters.back();
        };
        proto::Initializer* init = add(kAdapterA, in, rank_dim_)->mutable_init();
        const double bound = 1 / std::sqrt(static_cast<double>(candidate->in));
        init->mutable_uniform()->set_low(-bound);
        init->mutable_uniform()->set_high(bound);
        add(kAdapterB, rank_dim_, out)->mutable_init()->set_zeros(true);
      }
    }
    function->mutable_parameter()->Assign(parameters.begin(), parameters.end());
  }

  void AddProducts(proto::Function* function, const std::vector<const Candidate*>& adapted) {
    names_.clear();
    for (const auto& input : function->input()) names_.insert(input.name());
    for (const auto& parameter : function->parameter()) {
      for (const char* ending : {"", kAdapterA, kAdapterB})
        names_.insert(absl::StrCat(parameter.name(), ending));
    }
    for (const proto::Node& node : function->node()) {
      names_.insert(node.name());
      names_.insert(node.output().begin(), node.output().end());
    }
    std::map<int, const Candidate*> by_node;
    for (const Candidate* candidate : adapted) {
      for (const int n : candidate->products) by_node[n] = candidate;
    }
    std::vector<proto::Node> nodes;
    for (int n = 0; n < function->node_size(); ++n) {
      const auto product = by_node.find(n);
      if (product == by_node.end()) {
        nodes.push_back(function->node(n));
        continue;
      }
      AddPath(function->node(n), function->parameter(product->second->parameter).name(), &nodes);
    }
    function->mutable_node()->Assign(nodes.begin(), nodes.end());
  }

  // Returns `name`, or a name like it that no tensor of the function has.
  std::string FreeName(const std::string& name) {
    std::string free = name;
    for (int n = 2; !names_.insert(free).second; ++n) free = absl::StrCat(name, "_", n);
    return free;
  }

  // Adds the product, the second path and their sum. The results keep their names.
  void AddPath(const proto::Node& product, const std::string& weight,
               std::vector<proto::Node>* nodes) {
    const std::string result = product.output_size() > 0 ? product.output(0) : product.name();
    const auto add = [&](const std::string& name, const char* op,
                         const std::vector<std::string>& inputs) {
      proto::Node node;
      node.set_name(name);
      node.set_op(op);
      for (const std::string& input : inputs) node.add_input(input);
      nodes->push_back(std::move(node));
      return &nodes->back();
    };
    proto::Node base = product;
    std::string activation;
    base.clear_attr();
    for (const proto::NamedAttr& attr : product.attr()) {
      if (attr.name() == "activation") {
        if (attr.value().s() != "none") activation = attr.value().s();
      } else {
        *base.add_attr() = attr;
      }
    }
    base.clear_output();
    base.set_name(FreeName(absl::StrCat(result, ".base")));
    const std::string base_name = base.name();
    nodes->push_back(std::move(base));
    const auto multiply = [&](const char* name, const std::string& x, const char* adapter) {
      proto::Node* node =
          add(FreeName(absl::StrCat(result, name)), kProduct, {x, absl::StrCat(weight, adapter)});
      if (IsTransposed(product)) SetAttr("transpose_w", node)->set_b(true);
      return node->name();
    };
    std::string narrow = multiply(".down", product.input(0), kAdapterA);
    // The narrow tensor is the cheapest place for the factor.
    if (factor() != 1) {
      proto::Node* scale = add(FreeName(absl::StrCat(result, ".scaled")), "scale", {narrow});
      SetAttr("factor", scale)->set_f(factor());
      narrow = scale->name();
    }
    const std::string wide = multiply(".up", narrow, kAdapterB);
    // A product has a second result, the value before the activation.
    const bool has_pre = product.output_size() > 1;
    if (activation.empty() && !has_pre) {
      Rename(product, result, add("", "add", {base_name, wide}));
      return;
    }
    const std::string pre = has_pre ? product.output(1) : FreeName(absl::StrCat(result, ".pre"));
    add(pre, "add", {base_name, wide});
    if (!activation.empty()) {
      Rename(product, result, add("", activation.c_str(), {pre}));
    } else {
      proto::Node* same = add("", "scale", {pre});
      SetAttr("factor", same)->set_f(1);
      Rename(product, result, same);
    }
  }

  static proto::Attr* SetAttr(const char* name, proto::Node* node) {
    proto::NamedAttr* attr = node->add_attr();
    attr->set_name(name);
    return attr->mutable_value();
  }

  // Gives the last node the name of the product, and its first result.
  static void Rename(const proto::Node& product, const std::string& result, proto::Node* node) {
    node->set_name(product.name().empty() ? result : product.name());
    if (node->name() != result) node->add_output(result);
  }

  AddedAdapters Count() const {
    AddedAdapters added;
    for (const Candidate& candidate : candidates_) {
      const auto calls = static_cast<int64_t>(candidate.weights.size());
      (candidate.trained ? added.trained : added.frozen) += calls * candidate.elements;
      const bool is_small = candidate.obstacle.empty() && options_.rank > SmallerOf(candidate);
      if (is_small && options_.on.empty() && !candidate.trained && !candidate.was_frozen) {
        added.too_small.insert(added.too_small.end(), candidate.weights.begin(),
                               candidate.weights.end());
      }
      if (!candidate.adapted) continue;
      added.trained += calls * options_.rank * (candidate.in + candidate.out);
      added.weights.insert(added.weights.end(), candidate.weights.begin(), candidate.weights.end());
    }
    return added;
  }

  const AdapterOptions& options_;
  proto::Job job_;
  std::vector<Candidate> candidates_;
  std::string rank_dim_;
  std::set<std::string> names_;  // of the tensors of the function that is edited
};

}  // namespace

std::string NoteOfTooSmall(const AddedAdapters& added) {
  const auto count = static_cast<int64_t>(added.too_small.size());
  if (count == 0) return "";
  const bool is_one = count == 1;
  return absl::StrCat("a dimension of ", added.too_small.front(),
                      is_one ? "" : absl::StrCat(" and of ", Plural(count - 1, "other weight")),
                      " is below the rank, so training leaves ",
                      is_one ? "it as it is" : "them as they are",
                      "; `weir lora add --train PATTERN` trains ", is_one ? "it" : "them");
}

absl::StatusOr<AddedAdapters> AddAdapters(const AdapterOptions& options, proto::Job* job) {
  return AdapterWriter(options, *job).Run(job);
}

}  // namespace weir::adapters
