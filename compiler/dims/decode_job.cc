#include "compiler/dims/decode_job.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "compiler/dims/dim_lists.h"
#include "compiler/dims/find_dims.h"
#include "compiler/job/import_function.h"
#include "compiler/job/import_graph.h"
#include "ops/defs/at_positions.h"
#include "ops/defs/op_def.h"
#include "ops/defs/type_text.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

using Dim = DimAtoms::Dim;

absl::Status Impossible(const std::string& where, const std::string& expected,
                        const std::string& found) {
  return Rejected({"W0770", where, expected, found, ""});
}

bool Has(const Dim& dim, int atom) { return std::count(dim.begin(), dim.end(), atom) > 0; }

int64_t Count(const std::vector<Dim>& dims, int atom) {
  int64_t count = 0;
  for (const Dim& dim : dims) count += std::count(dim.begin(), dim.end(), atom);
  return count;
}

std::vector<std::string> OutputsOfNode(const proto::Node& node) {
  if (node.op() == "call") return OutputsOf(node);
  if (node.output().empty()) return {node.name()};
  return {node.output().begin(), node.output().end()};
}

class DecodeDeriver {
 public:
  DecodeDeriver(const proto::Job& job, std::string tokens, const DecodeSizes& sizes)
      : job_(job), tokens_(std::move(tokens)), sizes_(sizes) {}

  absl::StatusOr<DecodeJob> Run() {
    WEIR_RETURN_IF_ERROR(FindMain());
    WEIR_RETURN_IF_ERROR(EndAtLogits());
    WEIR_RETURN_IF_ERROR(MakeBatchCountable());
    WEIR_ASSIGN_OR_RETURN(table_, ImportDimTable(job_));
    WEIR_ASSIGN_OR_RETURN(found_, FindNodeDims(job_, PlanMode::kGenerate));
    WEIR_RETURN_IF_ERROR(FindAtoms());
    for (const NodeDims& node : found_.nodes) WEIR_RETURN_IF_ERROR(Visit(node));
    WEIR_RETURN_IF_ERROR(CheckLogits());
    Resize();
    InsertLookups();
    HandOverPositions();
    HandOverTable();
    ClearWhatTrains();
    return DecodeJob{std::move(job_), positions_, table_name_, std::move(unused_)};
  }

  // Changes the number of samples alone.
  absl::StatusOr<proto::Job> RunOfSamples() {
    WEIR_RETURN_IF_ERROR(FindMain());
    WEIR_ASSIGN_OR_RETURN(table_, ImportDimTable(job_));
    WEIR_ASSIGN_OR_RETURN(found_, FindNodeDims(job_, PlanMode::kGenerate));
    const Dim samples = DimOfTokens(0);
    if (samples.empty() && sizes_.rows == 1) return std::move(job_);
    if (samples.size() == 1) sample_ = samples[0];
    if (SetNamedSamples()) return std::move(job_);
    if (sample_ < 0) {
      return Rejected(
          {"W0070", absl::StrCat("input ", tokens_),
           "a number of samples that follows from the prompts",
           samples.empty() ? "one sample, written into the type" : "a number that an op cuts",
           "name the dimension in graph.dim, and write the name"});
    }
    Resize();
    return std::move(job_);
  }

 private:
  // A Lookup says how the derived graph reads the table that a node reads.
  struct Lookup {
    int function = 0, node = 0, operand = 0;
  };

  proto::Graph& graph() { return *job_.mutable_graph(); }
  proto::Function& function(int f) { return *graph().mutable_function(f); }

  absl::Status FindMain() {
    for (int f = 0; f < graph().function_size(); ++f) {
      if (graph().function(f).name() == graph().main()) main_ = f;
    }
    if (main_ < 0) return Impossible("graph", "a function main", "none");
    return absl::OkStatus();
  }

  // Removes what the logits do not depend on, apart from the loss that names them, whose targets
  // become an input of their own.
  absl::Status EndAtLogits() {
    proto::Function& main = function(main_);
    int loss = -1;
    for (int n = 0; n < main.node_size(); ++n) {
      if (main.node(n).op() == "softmax_cross_entropy" && main.node(n).input_size() > 0) loss = n;
    }
    if (loss < 0) {
      return Impossible(FunctionWhere(main.name()),
                        "a softmax_cross_entropy, whose logits generate text", "none");
    }
    logits_ = main.node(loss).input(0);
    std::set<std::string> needed = {logits_};
    std::vector<proto::Node> kept;
    for (int n = loss; n-- > 0;) {
      const proto::Node& node = main.node(n);
      const std::vector<std::string> outputs = OutputsOfNode(node);
      if (std::none_of(outputs.begin(), outputs.end(),
                       [&](const std::string& name) { return needed.count(name) > 0; })) {
        WEIR_RETURN_IF_ERROR(CheckDropped(node));
        continue;
      }
      needed.insert(node.input().begin(), node.input().end());
      needed.insert(node.shared().begin(), node.shared().end());
      kept.push_back(node);
    }
    for (int n = loss + 1; n < main.node_size(); ++n)
      WEIR_RETURN_IF_ERROR(CheckDropped(main.node(n)));
    std::reverse(kept.begin(), kept.end());
    proto::Node loss_node = main.node(loss);
    targets_ = FreeName("targets");
    while (loss_node.input_size() > 1) loss_node.mutable_input()->RemoveLast();
    loss_node.add_input(targets_);
    kept.push_back(loss_node);
    main.clear_output();
    main.add_output(OutputsOfNode(loss_node)[0]);
    main.mutable_node()->Assign(kept.begin(), kept.end());
    const auto unused = [&](const auto& tensor) { return needed.count(tensor.name()) == 0; };
    auto* parameters = main.mutable_parameter();
    WEIR_ASSIGN_OR_RETURN(const Dims table, ImportDimTable(job_));
    for (const proto::Parameter& parameter : *parameters) {
      if (!unused(parameter)) continue;
      absl::StatusOr<sbp::TensorType> type = ops::ParseType(parameter.type(), table);
      if (!type.ok()) return At(FunctionWhere(main.name()), type.status());
      unused_.emplace(parameter.name(), *std::move(type));
    }
    parameters->erase(std::remove_if(parameters->begin(), parameters->end(), unused),
                      parameters->end());
    auto* inputs = main.mutable_input();
    inputs->erase(std::remove_if(inputs->begin(), inputs->end(), unused), inputs->end());
    return AddTargets();
  }

  // Weights of a function that is not called any more would be unknown to the job.
  absl::Status CheckDropped(const proto::Node& node) {
    if (node.op() != "call") return absl::OkStatus();
    for (const proto::Function& called : graph().function()) {
      const bool has_weights =
          called.parameter_size() > 0 ||
          std::any_of(called.node().begin(), called.node().end(),
                      [](const proto::Node& inner) { return inner.op() == "call"; });
      if (called.name() != node.function() || !has_weights) continue;
      return Impossible(
          absl::StrCat(FunctionWhere(function(main_).name()), ", a call of ", called.name()),
          "logits that depend on each call with weights", "a call for another loss");
    }
    return absl::OkStatus();
  }

  // Gives the targets the shape of the logits without their last dimension.
  absl::Status AddTargets() {
    proto::Job without = job_;
    proto::Function* main = without.mutable_graph()->mutable_function(main_);
    main->mutable_node()->RemoveLast();
    main->clear_output();
    // The logits have a type once the nodes before them are imported.
    WEIR_ASSIGN_OR_RETURN(const Dims table, ImportDimTable(without));
    main->add_output(logits_);
    proto::Node* end = main->add_node();
    end->set_op("scale");
    end->set_name(FreeName("logits_end"));
    end->add_input(logits_);
    proto::NamedAttr* factor = end->add_attr();
    factor->set_name("factor");
    factor->mutable_value()->set_f(1);
    main->set_output(0, end->name());
    WEIR_ASSIGN_OR_RETURN(const Module module, ImportGraph(without, table, PlanMode::kGenerate));
    for (const Function& imported : module.functions) {
      for (const Value& value : imported.values) {
        if (value.name != end->name()) continue;
        std::vector<sbp::TensorDim> dims = value.type.dims;
        if (dims.empty()) break;
        dims.pop_back();
        proto::TensorDecl* targets = function(main_).add_input();
        targets->set_name(targets_);
        targets->set_type(absl::StrCat("i32[", ops::DimsText(dims), "]"));
        return absl::OkStatus();
      }
    }
    return Impossible(FunctionWhere(graph().main()), "logits with a row for each token", logits_);
  }

  // A dimension of size 1 is no factor of anything, so the search for dimensions needs two samples.
  absl::Status MakeBatchCountable() {
    const std::string items = DimsOf(InputOf(tokens_)->type());
    const std::string first(absl::StripAsciiWhitespace(items.substr(0, items.find(','))));
    for (proto::Dim& dim : *graph().mutable_dim()) {
      if (dim.name() != first || dim.size() != 1) continue;
      dim.set_size(2);
      // The targets have sizes of their own.
      WEIR_ASSIGN_OR_RETURN(const Dims table, ImportDimTable(job_));
      function(main_).mutable_input()->RemoveLast();
      return AddTargets();
    }
    return absl::OkStatus();
  }

  const proto::TensorDecl* InputOf(const std::string& name) {
    for (const proto::TensorDecl& input : function(main_).input()) {
      if (input.name() == name) return &input;
    }
    return nullptr;
  }

  // Sets the number of samples in the table of dimensions. Returns false if the table does not have
  // it, or if its name means something else in another place.
  bool SetNamedSamples() {
    const std::string items = DimsOf(InputOf(tokens_)->type());
    const std::string name(absl::StripAsciiWhitespace(items.substr(0, items.find(','))));
    for (const WrittenDim& written : found_.dims.written) {
      const std::vector<std::string> factors = absl::StrSplit(written.item, '*');
      if (sample_ >= 0 && std::count(factors.begin(), factors.end(), name) > 0 &&
          !Has(written.dim, sample_)) {
        return false;
      }
    }
    for (proto::Dim& dim : *graph().mutable_dim()) {
      if (dim.name() != name) continue;
      dim.set_size(sizes_.rows);
      dim.clear_unit();
      return true;
    }
    return false;
  }

  // Returns a dimension of the tokens; empty: its size is 1.
  Dim DimOfTokens(int axis) {
    for (const WrittenDim& written : found_.dims.written) {
      if (written.place == WrittenDim::Place::kInput && written.function == main_ &&
          written.axis == axis && function(main_).input(written.index).name() == tokens_)
        return written.dim;
    }
    return {};
  }

  absl::Status FindAtoms() {
    const Dim samples = DimOfTokens(0), positions = DimOfTokens(1);
    const std::string where = absl::StrCat("input ", tokens_);
    if (samples.size() != 1)
      return Impossible(where, "samples of which no op cuts the number", "a number that is cut");
    if (positions.size() != 1 || positions[0] == samples[0]) {
      return Impossible(where, "more than one position, whose number no op cuts",
                        positions.empty() ? "one" : "a number that is cut");
    }
    sample_ = samples[0];
    position_ = positions[0];
    return absl::OkStatus();
  }

  // Returns whether a tensor has a value for each token, and not for each position alone.
  bool IsOfTokens(const std::vector<Dim>& dims) const {
    return Count(dims, position_) > 0 && Count(dims, sample_) > 0;
  }

  std::string Where(const NodeDims& node) {
    const proto::Node& of = function(node.function).node(node.node);
    return absl::StrCat(FunctionWhere(function(node.function).name()), ", node ",
                        of.name().empty() ? OutputsOfNode(of)[0] : of.name(), " (", of.op(), ")");
  }

  absl::Status Visit(const NodeDims& node) {
    const auto of_tokens = [&](const std::vector<Dim>& dims) { return IsOfTokens(dims); };
    const bool reads = std::any_of(node.operands.begin(), node.operands.end(), of_tokens);
    if (!reads && std::none_of(node.results.begin(), node.results.end(), of_tokens))
      return absl::OkStatus();
    proto::Node* of = function(node.function).mutable_node(node.node);
    if (of->op() == "softmax_cross_entropy" && node.function == main_ && of->input(1) == targets_) {
      logits_dims_ = node.operands[0];
      return absl::OkStatus();
    }
    const ops::AtPositions* at = ops::FindAtPositions(of->op());
    if (at != nullptr && reads && Count(node.operands[0], position_) > 0)
      return ReadPositions(node, *at, of);
    for (const std::vector<Dim>& operand : node.operands) {
      if (!IsOfTokens(operand)) continue;
      for (const int atom : {position_, sample_}) {
        for (const Dim& whole : node.whole) {
          if (Has(whole, atom)) return Mixes(node, atom);
        }
        if (Count(operand, atom) > 1) return Mixes(node, atom);
        for (const std::vector<Dim>& result : node.results) {
          if (Count(result, atom) != 1) return Mixes(node, atom);
        }
      }
    }
    return VisitTables(node);
  }

  // In one step the sequences are at different positions. So an op that relates the sequences to
  // each other cannot stay either.
  absl::Status Mixes(const NodeDims& node, int atom) {
    if (atom == sample_) {
      return Impossible(Where(node), "ops that treat each sequence by itself",
                        "an op that relates the sequences to each other");
    }
    return Impossible(Where(node), "only causal attention to relate the positions of a sequence",
                      "an op that needs all of them together");
  }

  // Replaces the op by the one that reads positions.
  absl::Status ReadPositions(const NodeDims& node, const ops::AtPositions& at, proto::Node* of) {
    const auto is_along = [&](const std::vector<Dim>& dims) {
      return static_cast<int>(dims.size()) > at.axis && dims[0] == Dim{sample_} &&
             dims[at.axis] == Dim{position_} && Count(dims, position_) == 1;
    };
    if (!std::all_of(node.operands.begin(), node.operands.end(), is_along) ||
        node.operands.size() != static_cast<size_t>(at.num_inputs)) {
      return Impossible(Where(node),
                        absl::StrCat(at.num_inputs, at.num_inputs == 1 ? " operand" : " operands",
                                     " of samples and positions alone"),
                        node.operands.size() > static_cast<size_t>(at.num_inputs)
                            ? "a further operand, such as a mask"
                            : "another order of dimensions");
    }
    for (int a = of->attr_size(); !at.if_true.empty() && a-- > 0;) {
      if (of->attr(a).name() != at.if_true) continue;
      if (!of->attr(a).value().b()) {
        return Impossible(Where(node), absl::StrCat(at.if_true, ": true"),
                          absl::StrCat(at.if_true, ": false"));
      }
      of->mutable_attr()->DeleteSubrange(a, 1);
    }
    for (int o = 1; o < of->output_size(); ++o) {
      if (!IsRead(function(node.function), of->output(o))) continue;
      return Impossible(Where(node), "an op of which the model reads the first result alone",
                        absl::StrCat("a reader of ", of->output(o)));
    }
    of->set_op(at.op);
    readers_.emplace_back(node.function, node.node);
    if (!at.keeps) return absl::OkStatus();
    keepers_.emplace_back(node.function, node.node);
    for (const auto& [name, value] :
         {std::pair<const char*, int64_t>{"pages", sizes_.pages}, {"page_size", kPageSize}}) {
      proto::NamedAttr* attr = of->add_attr();
      attr->set_name(name);
      attr->mutable_value()->set_i(value);
    }
    const std::string first = OutputsOfNode(*of)[0];
    of->clear_output();
    const ops::OpDef* def = ops::OpRegistry::Find(at.op);
    for (size_t o = 0; o < def->schema.outputs.size(); ++o) {
      of->add_output(o == 0 ? first
                            : FreeName(absl::StrCat(first, ".", def->schema.outputs[o].name)));
    }
    return absl::OkStatus();
  }

  static bool IsRead(const proto::Function& function, const std::string& tensor) {
    const auto has = [&](const auto& names) {
      return std::find(names.begin(), names.end(), tensor) != names.end();
    };
    return has(function.output()) || std::any_of(function.node().begin(), function.node().end(),
                                                 [&](const proto::Node& node) {
                                                   return has(node.input()) || has(node.shared());
                                                 });
  }

  // An operand with a row for each position, which all samples share, is looked up.
  absl::Status VisitTables(const NodeDims& node) {
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const std::vector<Dim>& table = node.operands[i];
      if (Count(table, position_) == 0 || IsOfTokens(table)) continue;
      const std::vector<Dim>& result = node.results[0];
      const bool fits = table.size() == 2 && table[0] == Dim{position_} && result.size() == 3 &&
                        result[0] == Dim{sample_} && result[1] == Dim{position_} &&
                        Count({table[1]}, position_) == 0;
      if (!fits) {
        return Impossible(Where(node),
                          "a table [positions, width] that is added to [samples, positions, width]",
                          "a tensor with positions and no samples in another shape");
      }
      lookups_.push_back({node.function, node.node, static_cast<int>(i)});
    }
    return absl::OkStatus();
  }

  absl::Status CheckLogits() {
    Dim rows;
    for (size_t d = 0; d + 1 < logits_dims_.size(); ++d)
      rows.insert(rows.end(), logits_dims_[d].begin(), logits_dims_[d].end());
    if (rows == Dim{sample_, position_}) return absl::OkStatus();
    return Impossible(absl::StrCat(FunctionWhere(graph().main()), ", logits ", logits_),
                      "a row for each sample and position, in this order", "another order");
  }

  int64_t NewSize(int atom) const {
    if (atom == sample_) return sizes_.rows;
    return atom == position_ ? sizes_.positions : found_.dims.atoms.SizeOf(atom);
  }

  // Writes the new sizes into the text. Tensors without samples keep theirs.
  void Resize() {
    std::map<std::tuple<int, int, int, int>, std::vector<const WrittenDim*>> tensors;
    for (const WrittenDim& written : found_.dims.written)
      tensors[{static_cast<int>(written.place), written.function, written.index, written.attribute}]
          .push_back(&written);
    for (const auto& [key, axes] : tensors) {
      const bool has_samples = std::any_of(axes.begin(), axes.end(), [&](const WrittenDim* axis) {
        return Has(axis->dim, sample_);
      });
      if (!has_samples) continue;
      std::vector<std::string> items;
      for (const WrittenDim* axis : axes) items.push_back(NewItem(*axis));
      WriteDims(*axes[0], absl::StrJoin(items, ", "));
    }
  }

  std::string NewItem(const WrittenDim& axis) {
    if (!Has(axis.dim, sample_) && !Has(axis.dim, position_)) return axis.item;
    int64_t size = 1, minor = 1;
    for (size_t i = 0; i < axis.dim.size(); ++i) {
      size *= NewSize(axis.dim[i]);
      if (i > 0) minor *= NewSize(axis.dim[i]);
    }
    const absl::StatusOr<std::vector<sbp::TensorDim>> dims = ops::ParseDims(axis.item, table_);
    const std::string name = dims.ok() && !dims->empty() ? (*dims)[0].name : axis.name;
    const bool has_unit = dims.ok() && !dims->empty() && (*dims)[0].unit > 1;
    return absl::StrCat(name, "=", size, "/", has_unit ? minor : 1);
  }

  void WriteDims(const WrittenDim& at, const std::string& dims) {
    proto::Function& of = function(at.function);
    DimList list;
    switch (at.place) {
      case WrittenDim::Place::kInput:
        list = {of.mutable_input(at.index)->mutable_type(), true};
        break;
      case WrittenDim::Place::kParameter:
        list = {of.mutable_parameter(at.index)->mutable_type(), true};
        break;
      case WrittenDim::Place::kAttribute:
        list = {of.mutable_node(at.index)->mutable_attr(at.attribute)->mutable_value()->mutable_s(),
                false};
        break;
    }
    list.Replace(dims);
  }

  // Lets the readers of tables read rows of them. A node is named by its place until the last
  // lookup stands in its function, so the lookups go in from the last node to the first.
  void InsertLookups() {
    positions_ = FreeName("positions");
    for (const auto& [f, n] : readers_) {
      function(f).mutable_node(n)->add_input(positions_);
      users_.insert(f);
    }
    if (!keepers_.empty()) table_name_ = FreeName("pages");
    for (const auto& [f, n] : keepers_) {
      function(f).mutable_node(n)->add_input(table_name_);
      table_users_.insert(f);
    }
    std::sort(lookups_.begin(), lookups_.end(), [](const Lookup& a, const Lookup& b) {
      return std::tie(a.function, a.node, a.operand) > std::tie(b.function, b.node, b.operand);
    });
    for (const Lookup& lookup : lookups_) {
      proto::Function& of = function(lookup.function);
      users_.insert(lookup.function);
      proto::Node node;
      const std::string table = of.node(lookup.node).input(lookup.operand);
      node.set_name(FreeName(absl::StrCat(table, ".at_positions")));
      node.set_op("embedding");
      node.add_input(table);
      node.add_input(positions_);
      of.mutable_node(lookup.node)->set_input(lookup.operand, node.name());
      *of.add_node() = std::move(node);
      for (int n = of.node_size() - 1; n > lookup.node; --n)
        of.mutable_node()->SwapElements(n, n - 1);
    }
  }

  // Gives the positions to every function that reads them, and to the callers of these.
  void HandOverPositions() {
    HandOver(positions_, absl::StrCat("i32[", DimsOf(InputOf(tokens_)->type()), "]"), &users_);
  }

  void HandOverTable() {
    if (table_name_.empty()) return;
    const std::string items = DimsOf(InputOf(tokens_)->type());
    HandOver(table_name_,
             absl::StrCat("i32[", items.substr(0, items.find(',')),
                          ", pages_of_sequence=", sizes_.entries, "]"),
             &table_users_);
  }

  // Gives the input of main to the functions that read it, `*users`, and to the callers of these,
  // which become users, too.
  void HandOver(const std::string& name, const std::string& type, std::set<int>* users) {
    std::map<std::string, int> by_name;
    for (int f = 0; f < graph().function_size(); ++f)
      by_name.emplace(graph().function(f).name(), f);
    const auto calls_user = [&](const proto::Node& node) {
      return node.op() == "call" && by_name.count(node.function()) > 0 &&
             users->count(by_name[node.function()]) > 0;
    };
    for (bool grows = true; grows;) {
      grows = false;
      for (int f = 0; f < graph().function_size(); ++f) {
        const auto& nodes = graph().function(f).node();
        if (std::any_of(nodes.begin(), nodes.end(), calls_user))
          grows = users->insert(f).second || grows;
      }
    }
    users->insert(main_);
    for (const int f : *users) {
      proto::TensorDecl* input = function(f).add_input();
      input->set_name(name);
      input->set_type(type);
      for (proto::Node& node : *function(f).mutable_node()) {
        if (calls_user(node)) node.add_shared(name);
      }
    }
  }

  // Removes the fields that concern training, or the whole sequence, alone.
  void ClearWhatTrains() {
    // Names of dimensions, and whether each of them means positions everywhere.
    std::map<std::string, bool> of_positions;
    for (const WrittenDim& written : found_.dims.written) {
      bool& only = of_positions.emplace(written.name, true).first->second;
      only = only && written.dim == Dim{position_};
    }
    auto* rules = job_.mutable_rule();
    rules->erase(std::remove_if(rules->begin(), rules->end(),
                                [&](const proto::Rule& rule) {
                                  const auto found = of_positions.find(rule.dim());
                                  return found != of_positions.end() && found->second;
                                }),
                 rules->end());
    for (proto::Function& of : *graph().mutable_function()) of.clear_keep();
    job_.mutable_runtime()->clear_recompute();
    job_.mutable_training()->clear_batch_dim();
    job_.mutable_training()->set_micro_batches(1);
    job_.clear_layout();
  }

  // Returns `wanted`, or a name that begins with it, which no tensor of the graph has.
  std::string FreeName(const std::string& wanted) {
    if (taken_.empty()) {
      for (const proto::Function& of : graph().function()) {
        for (const proto::TensorDecl& input : of.input()) taken_.insert(input.name());
        for (const proto::Parameter& parameter : of.parameter()) taken_.insert(parameter.name());
        for (const proto::Node& node : of.node()) {
          taken_.insert(node.name());
          for (const std::string& output : OutputsOfNode(node)) taken_.insert(output);
        }
      }
    }
    std::string name = wanted;
    for (int i = 1; !taken_.insert(name).second; ++i) name = absl::StrCat(wanted, "_", i);
    return name;
  }

  proto::Job job_;
  const std::string tokens_;
  const DecodeSizes sizes_;
  int main_ = -1;
  std::string logits_, targets_, positions_, table_name_;
  std::map<std::string, sbp::TensorType> unused_;
  Dims table_;
  GraphNodeDims found_;
  int sample_ = -1, position_ = -1;  // atoms
  std::vector<Dim> logits_dims_;
  std::vector<std::pair<int, int>> readers_;  // nodes that read positions: function, node
  std::vector<std::pair<int, int>> keepers_;  // likewise, nodes that read the table
  std::vector<Lookup> lookups_;
  std::set<int> users_, table_users_;  // functions that read positions, and the table
  std::set<std::string> taken_;
};

}  // namespace

absl::StatusOr<DecodeJob> DecodeJobOf(const proto::Job& job, const std::string& tokens,
                                      const DecodeSizes& sizes) {
  return DecodeDeriver(job, tokens, sizes).Run();
}

absl::StatusOr<proto::Job> WithSamples(const proto::Job& job, const std::string& tokens,
                                       int64_t samples) {
  return DecodeDeriver(job, tokens, {.rows = samples}).RunOfSamples();
}

}  // namespace weir::compiler
