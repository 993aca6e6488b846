#include "compiler/dims/name_dims.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/dims/dim_lists.h"

namespace weir::compiler {
namespace {

// Names of parameters that many published models share, with the dimension that they tell. `axis`
// is that of the parameter as most files hold it, a matrix as [out, in].
struct KnownParameter {
  const char* suffix;
  int axis;
  const char* name;
};

constexpr KnownParameter kKnownParameters[] = {
    {"q_proj.weight", 0, "heads"},
    {"query.weight", 0, "heads"},
    {"c_fc.bias", 0, "ffn"},  // the weight is stored in either order
    {"fc1.weight", 0, "ffn"},
    {"gate_proj.weight", 0, "ffn"},
    {"up_proj.weight", 0, "ffn"},
    {"intermediate.dense.weight", 0, "ffn"},
    {"wi.weight", 0, "ffn"},
    {"embed_tokens.weight", 0, "vocab"},
    {"wte.weight", 0, "vocab"},
    {"word_embeddings.weight", 0, "vocab"},
    {"lm_head.weight", 0, "vocab"},
    {"embed_tokens.weight", 1, "hidden"},
    {"wte.weight", 1, "hidden"},
    {"word_embeddings.weight", 1, "hidden"},
    {"wpe.weight", 0, "positions"},
    {"position_embeddings.weight", 0, "positions"},
    {"token_type_embeddings.weight", 0, "token_types"},
    {"classifier.weight", 0, "classes"},
};

// A Role names a dimension of an operand by the part that the op gives the dimension. `axis` may be
// negative: it then counts from the end.
struct Role {
  const char* op;
  int operand;
  int axis;
  const char* name;   // of the major atom
  const char* minor;  // of a second atom; null: the role says nothing about it
  int rank = 0;       // of the operand; 0: any
};

constexpr Role kRoles[] = {
    {"attention", 1, 2, "heads", nullptr},
    {"attention", 0, 2, "heads", "heads_per_group"},
    {"attention", 0, 3, "head_dim", nullptr},
    {"rotary", 0, -1, "head_dim", nullptr},
    {"batched_matmul", 0, 1, "heads", nullptr, 4},
    {"batched_matmul", 0, 3, "head_dim", nullptr, 4},
    {"softmax_cross_entropy", 0, -1, "classes", nullptr, 2},
    {"softmax_cross_entropy", 0, -1, "vocab", nullptr},
    {"layer_norm", 0, -1, "hidden", nullptr},
    {"rms_norm", 0, -1, "hidden", nullptr},
    {"embedding", 0, 1, "hidden", nullptr},
    {"embedding", 0, 0, "vocab", nullptr},
    {"conv", 0, 1, "channels", nullptr},
    {"conv", 0, 2, "time", nullptr, 3},
    {"conv", 0, 2, "height", nullptr, 4},
    {"conv", 0, 3, "width", nullptr, 4},
    {"conv", 1, 2, "kernel", nullptr, 3},
    {"conv", 1, 2, "kernel_height", nullptr, 4},
    {"conv", 1, 3, "kernel_width", nullptr, 4},
    {"normalize", 0, 1, "groups", nullptr, 5},
    {"normalize", 0, 2, "group_channels", nullptr, 5},
};

// A dimension that is a product of heads and more is the dimension of heads for a rule. Any other
// name of a product says nothing about the major atom.
bool MayName(const DimAtoms::Dim& dim, const std::string& name) {
  return dim.size() == 1 || name == "heads";
}

// The sources of a name, the best first.
enum class Source : uint8_t { kGiven, kKnownParameter, kRole, kPartOfGiven, kParameter, kNone };

struct Candidate {
  Source source = Source::kNone;
  size_t position = 0;  // in the list of its source: an earlier entry is the better one
  std::string name, why;
};

bool Better(const Candidate& a, const Candidate& b) {
  return std::tie(a.source, a.position) < std::tie(b.source, b.position);
}

std::string Axis(const WrittenDim& at) { return absl::StrCat(at.tensor, "[", at.axis, "]"); }

// Returns whether `name` ends in `suffix` at the beginning of a part of the name.
bool EndsInParts(const std::string& name, const std::string& suffix) {
  return absl::EndsWith(name, suffix) &&
         (name.size() == suffix.size() || name[name.size() - suffix.size() - 1] == '.');
}

// Returns the part of a parameter's name before "weight" or "bias": "fc" of "mlp.fc.weight".
std::string ModuleOf(const std::string& parameter) {
  std::vector<std::string> parts = absl::StrSplit(parameter, '.');
  if (parts.size() > 1 && (parts.back() == "weight" || parts.back() == "bias")) parts.pop_back();
  std::string name = parts.back();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0 && c != '_'; },
      '_');
  const bool is_name = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0;
  return is_name ? name : absl::StrCat("dim_", name);
}

class Namer {
 public:
  explicit Namer(const GraphDims& dims) : dims_(dims) {}

  std::vector<DimName> Run() {
    for (const WrittenDim& written : dims_.written) Note(written);
    for (const OperandDim& operand : dims_.operands) NoteRoles(operand);
    NoteTwice();
    // Better sources choose first. Dimensions of one size that play one part share the name, so
    // that one rule speaks of all of them.
    std::vector<int> order(names_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::stable_sort(order.begin(), order.end(),
                     [this](int a, int b) { return Better(best_[a], best_[b]); });
    std::map<std::string, int64_t> taken;
    for (int i : order) {
      const Candidate& best = best_[i];
      const std::string name =
          best.source == Source::kNone ? absl::StrCat("d", names_[i].size) : best.name;
      names_[i].why = best.source == Source::kNone ? "no parameter and no op tells" : best.why;
      names_[i].name = name;
      const bool may_share = best.source < Source::kPartOfGiven;
      for (int n = 2; !taken.emplace(names_[i].name, names_[i].size).second; ++n) {
        if (may_share && taken.at(names_[i].name) == names_[i].size) break;
        names_[i].name = absl::StrCat(name, "_", n);
      }
    }
    return std::move(names_);
  }

 private:
  // Returns the place of the atom in `names_`; -1: it stands in no text.
  int Find(int atom) const {
    const auto it = index_.find(atom);
    return it == index_.end() ? -1 : it->second;
  }

  void Offer(int atom, Candidate candidate) {
    const int i = Find(atom);
    if (i >= 0 && Better(candidate, best_[i])) best_[i] = std::move(candidate);
  }

  void Note(const WrittenDim& at) {
    for (int atom : at.dim) {
      if (index_.emplace(atom, static_cast<int>(names_.size())).second) {
        names_.push_back({atom, dims_.atoms.SizeOf(atom), "", "", {}, {}});
        best_.push_back({});
      }
      if (at.place == WrittenDim::Place::kParameter)
        names_[Find(atom)].parameters.push_back(Axis(at));
    }
    if (at.dim.empty()) return;
    const bool is_product = at.item.find('*') != std::string::npos;
    if (!is_product && !IsProvisional(at.name)) {
      Offer(at.dim[0], {at.dim.size() == 1 ? Source::kGiven : Source::kPartOfGiven, given_++,
                        at.name, absl::StrCat("given by ", at.tensor)});
    }
    if (at.place != WrittenDim::Place::kParameter) return;
    for (size_t k = 0; k < std::size(kKnownParameters); ++k) {
      const KnownParameter& known = kKnownParameters[k];
      // A matrix that a product reads as [in, out] has the axes the other way round.
      const int axis = dims_.turned.count(at.tensor) > 0 ? 1 - known.axis : known.axis;
      if (axis == at.axis && EndsInParts(at.tensor, known.suffix) && MayName(at.dim, known.name)) {
        Offer(at.dim[0], {Source::kKnownParameter, k, known.name,
                          absl::StrCat("the usual name of ", known.suffix, "[", axis, "]")});
      }
    }
    if (at.dim.size() == 1) {
      Offer(at.dim[0], {Source::kParameter, parameters_++, ModuleOf(at.tensor), Axis(at)});
    }
  }

  void NoteRoles(const OperandDim& at) {
    for (size_t r = 0; r < std::size(kRoles); ++r) {
      const Role& role = kRoles[r];
      const int axis = role.axis < 0 ? at.rank + role.axis : role.axis;
      if (at.op != role.op || at.operand != role.operand || at.axis != axis || at.dim.empty())
        continue;
      if (role.rank != 0 && role.rank != at.rank) continue;
      const std::string why = absl::StrCat(at.op, " ", at.node);
      if (MayName(at.dim, role.name)) Offer(at.dim[0], {Source::kRole, r, role.name, why});
      if (role.minor != nullptr && at.dim.size() == 2)
        Offer(at.dim[1], {Source::kRole, r, role.minor, why});
    }
  }

  void NoteTwice() {
    using Tensor = std::tuple<WrittenDim::Place, int, int, int>;
    std::map<std::pair<Tensor, int>, int> count;
    for (const WrittenDim& at : dims_.written) {
      for (int atom : at.dim) {
        const Tensor tensor{at.place, at.function, at.index, at.attribute};
        if (++count[{tensor, atom}] == 2) names_[Find(atom)].twice.push_back(at.tensor);
      }
    }
  }

  const GraphDims& dims_;
  std::map<int, int> index_;
  std::vector<DimName> names_;
  std::vector<Candidate> best_;
  size_t given_ = 0, parameters_ = 0;
};

class Renamer {
 public:
  Renamer(const std::vector<DimName>& names, proto::Graph* graph) : graph_(graph) {
    for (const DimName& name : names) names_[name.atom] = &name;
    for (const proto::Dim& dim : graph->dim()) table_[dim.name()] = dim.size();
  }

  // Returns the items of one text, joined. `begin` to `end` are its dimensions.
  template <class Iterator>
  std::string Items(Iterator begin, Iterator end) {
    return absl::StrJoin(begin, end, ", ", [this](std::string* out, const WrittenDim& at) {
      absl::StrAppend(out, Stays(at) ? at.item : Item(at));
    });
  }

  // Returns the new name of each name that no dimension has any more. That of a product is the name
  // of its major part.
  std::map<std::string, std::string> Replaced(const GraphDims& dims) const {
    std::map<std::string, std::string> replaced;
    for (const WrittenDim& at : dims.written) {
      if (!Stays(at) && !at.dim.empty()) replaced.emplace(at.name, names_.at(at.dim[0])->name);
    }
    for (const WrittenDim& at : dims.written) {
      if (Stays(at)) replaced.erase(at.name);
    }
    return replaced;
  }

 private:
  // A name that the graph gives stays unless the dimension has another name.
  bool Stays(const WrittenDim& at) const {
    if (IsProvisional(at.name)) return false;
    return at.dim.empty() || at.item.find('*') != std::string::npos ||
           names_.at(at.dim[0])->name == at.name;
  }

  std::string Item(const WrittenDim& at) {
    if (at.dim.empty()) return "one=1";
    std::vector<std::string> factors;
    bool in_table = true;
    int64_t unit = 1;
    for (int atom : at.dim) {
      const DimName& name = *names_.at(atom);
      in_table = in_table && Size(name) == name.size;
      if (!factors.empty()) unit *= name.size;
      factors.push_back(name.name);
    }
    if (in_table) return absl::StrJoin(factors, "*");
    return absl::StrCat(factors[0], "=", at.size, "/", unit);
  }

  // Returns the size that the graph gives the name. A name without one gets its own.
  int64_t Size(const DimName& name) {
    const auto [it, added] = table_.emplace(name.name, name.size);
    if (added) {
      proto::Dim* dim = graph_->add_dim();
      dim->set_name(name.name);
      dim->set_size(name.size);
    }
    return it->second;
  }

  proto::Graph* graph_;
  std::map<int, const DimName*> names_;
  std::map<std::string, int64_t> table_;
};

bool SameText(const WrittenDim& a, const WrittenDim& b) {
  return std::tie(a.place, a.function, a.index, a.attribute) ==
         std::tie(b.place, b.function, b.index, b.attribute);
}

std::string* TextOf(const WrittenDim& at, proto::Graph* graph) {
  proto::Function* function = graph->mutable_function(at.function);
  switch (at.place) {
    case WrittenDim::Place::kInput: return function->mutable_input(at.index)->mutable_type();
    case WrittenDim::Place::kParameter:
      return function->mutable_parameter(at.index)->mutable_type();
    case WrittenDim::Place::kAttribute: break;
  }
  return function->mutable_node(at.index)->mutable_attr(at.attribute)->mutable_value()->mutable_s();
}

}  // namespace

std::vector<DimName> NameDims(const GraphDims& dims) { return Namer(dims).Run(); }

void ReplaceProvisional(const GraphDims& dims, const std::vector<DimName>& names, proto::Job* job) {
  proto::Graph* graph = job->mutable_graph();
  if (std::none_of(dims.written.begin(), dims.written.end(),
                   [](const WrittenDim& at) { return IsProvisional(at.name); })) {
    return;
  }
  Renamer renamer(names, graph);
  for (auto begin = dims.written.begin(); begin != dims.written.end();) {
    const auto end = std::find_if_not(begin, dims.written.end(),
                                      [&](const WrittenDim& at) { return SameText(*begin, at); });
    const DimList list{TextOf(*begin, graph), begin->place != WrittenDim::Place::kAttribute};
    list.Replace(renamer.Items(begin, end));
    begin = end;
  }
  const std::map<std::string, std::string> replaced = renamer.Replaced(dims);
  const auto follow = [&](std::string* name) {
    const auto known = replaced.find(*name);
    if (known != replaced.end()) *name = known->second;
  };
  for (proto::Rule& rule : *job->mutable_rule()) follow(rule.mutable_dim());
  if (job->has_training()) follow(job->mutable_training()->mutable_batch_dim());
}

}  // namespace weir::compiler
