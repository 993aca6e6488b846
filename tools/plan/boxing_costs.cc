#include "tools/plan/boxing_costs.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/explain/bytes_per_step.h"
#include "compiler/job/mesh_use.h"
#include "compiler/lower/segments.h"
#include "compiler/transfer/transfer_lowering.h"
#include "runtime/base/status.h"
#include "sbp/boxing.h"
#include "sbp/boxing_over_hosts.h"

namespace weir::plan {
namespace {

using compiler::ItemKind;
using compiler::ProgramItem;
using compiler::ProgramValue;
using compiler::TransferBundle;

// Larger meshes get no busiest link, because a look at each of their links takes long.
constexpr int64_t kRanksWithLinks = 64;
// The share of all bytes that a rule must save to be named.
constexpr double kMuchLess = 0.6;
constexpr size_t kRulesTried = 12;
constexpr size_t kItemsTried = 4000;  // items of the program, for each rule

// Returns "layers.12.d_wq +15" without its numbers: "layers.#.d_wq +15".
std::string WithoutLayer(const std::string& name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool follows_point = i > 0 && name[i - 1] == '.';
    if (!follows_point || !absl::ascii_isdigit(name[i])) {
      text.push_back(name[i]);
      continue;
    }
    while (i + 1 < name.size() && absl::ascii_isdigit(name[i + 1])) ++i;
    text.push_back('#');
  }
  return text;
}

// Turns "layers.3.d_attention_norm_gamma +15" into "gradients of layers.3". Returns "" for a name
// that is no gradient of weights.
std::string GradientsOf(const std::string& name) {
  const size_t at = name.find(".d_");
  return at == std::string::npos ? "" : absl::StrCat("gradients of ", name.substr(0, at));
}

// Returns "up, q_heads and 4 more".
std::string Listed(std::vector<std::string> names) {
  constexpr size_t kShown = 2;
  if (names.size() <= kShown + 1) return absl::StrJoin(names, ", ");
  const size_t more = names.size() - kShown;
  names.resize(kShown);
  return absl::StrCat(absl::StrJoin(names, ", "), " and ", more, " more");
}

class CostsOfPlan {
 public:
  explicit CostsOfPlan(const compiler::LogicalPlan& plan)
      : plan_(plan), transfers_(plan.settings.runtime) {}

  absl::StatusOr<std::vector<BoxingCost>> Run() {
    WEIR_RETURN_IF_ERROR(OfFunctions());
    WEIR_RETURN_IF_ERROR(OfProgram());
    std::vector<BoxingCost> costs;
    for (const std::string& key : order_) {
      Group& group = groups_.at(key);
      if (group.members > 1 && group.of_program)
        absl::StrAppend(&group.cost.name, " and ", group.members - 1, " more");
      for (const auto& [link, bytes] : group.links) {
        if (bytes <= group.cost.link_bytes) continue;
        group.cost.link_bytes = bytes;
        std::tie(group.cost.from, group.cost.to) = link;
      }
      costs.push_back(std::move(group.cost));
    }
    std::stable_sort(costs.begin(), costs.end(),
                     [](const BoxingCost& a, const BoxingCost& b) { return a.bytes > b.bytes; });
    return costs;
  }

 private:
  struct Group {
    BoxingCost cost;
    bool of_program = false;  // not inside a function; the members have their own names
    int64_t members = 0;
    std::map<std::pair<RankId, RankId>, double> links;
  };
  // Tensors that one boxing moves together.
  struct Bundle {
    compiler::MovedTensors moved;
    int64_t times = 1;  // in the steps from one update to the next
  };

  // Adds the bytes of a boxing to the boxings of the same key. The first boxing of the key gives
  // name, layouts and cause.
  void Add(const std::string& key, BoxingCost cost, const Bundle& bundle) {
    const auto [it, is_new] = groups_.try_emplace(key);
    Group& group = it->second;
    if (is_new) {
      order_.push_back(key);
      std::vector<std::string> methods;
      const std::vector<sbp::BoxingStep>& steps = bundle.moved.steps()[0];
      for (size_t k = 0; k < steps.size(); ++k) {
        methods.push_back(absl::StrCat(transfers_.IsCollective(bundle.moved, k) ? "group " : "",
                                       Name(steps[k].method)));
      }
      cost.method = absl::StrJoin(methods, " + ");
      cost.times = 0;
      group.of_program = key[0] == 'p';
      group.cost = std::move(cost);
    }
    const double per_step =
        static_cast<double>(bundle.times) / static_cast<double>(plan_.updates.every);
    ++group.members;
    group.cost.times += std::max<int64_t>(1, bundle.times / plan_.updates.every);
    group.cost.bytes += per_step * static_cast<double>(transfers_.TotalBytes(bundle.moved));
    group.cost.bytes_between_hosts += per_step * BytesBetweenHosts(bundle);
    if (plan_.places.num_ranks() <= kRanksWithLinks) AddLinks(bundle, per_step, &group);
  }

  // Returns whether links tell the bytes from host to host: those of equal meshes that hosts do not
  // cut evenly.
  bool CountsLinksBetweenHosts() const {
    return plan_.places.has_equal_meshes() && plan_.places.host_cut() == nullptr;
  }

  // Returns the bytes that a bundle sends from host to host, or 0 if links tell them.
  double BytesBetweenHosts(const Bundle& bundle) {
    if (CountsLinksBetweenHosts()) return 0;
    const sbp::HostCut* const cut = plan_.places.host_cut();
    int64_t bytes = 0;
    if (cut == nullptr) {
      for (size_t k = 0; k < bundle.moved.num_transfers(); ++k)
        bytes += BytesBetweenHosts(bundle.moved, k);
      return static_cast<double>(bytes);
    }
    for (size_t i = 0; i < bundle.moved.types().size(); ++i)
      bytes += sbp::BytesBetweenHosts(bundle.moved.types()[i], bundle.moved.steps()[i],
                                      bundle.moved.places(), *cut);
    return static_cast<double>(bytes);
  }

  // Returns the bytes that transfer `k` sends from host to host, whatever the meshes are.
  int64_t BytesBetweenHosts(const compiler::MovedTensors& moved, size_t k) {
    int64_t bytes = 0;
    if (!transfers_.IsCollective(moved, k)) {
      for (size_t i = 0; i < moved.types().size(); ++i)
        bytes += sbp::BytesBetweenHosts(moved.types()[i], {moved.steps()[i][k]}, moved.places());
      return bytes;
    }
    const std::unique_ptr<compiler::TransferLowering> transfer = transfers_.Make(moved, k, {});
    for (const RankId rank : plan_.places.ranks(moved.steps()[0][k].from.place)) {
      for (const auto& [peer, sent] : transfer->BytesSent(rank)) {
        if (plan_.places.HostOf(rank) != plan_.places.HostOf(peer)) bytes += sent;
      }
    }
    return bytes;
  }

  void AddLinks(const Bundle& bundle, double per_step, Group* group) {
    for (size_t k = 0; k < bundle.moved.num_transfers(); ++k) {
      const std::unique_ptr<compiler::TransferLowering> transfer =
          transfers_.Make(bundle.moved, k, {});
      for (RankId rank : plan_.places.all_ranks()) {
        for (const auto& [peer, bytes] : transfer->BytesSent(rank)) {
          const double sent = per_step * static_cast<double>(bytes);
          group->links[{rank, peer}] += sent;
          if (CountsLinksBetweenHosts() && plan_.places.HostOf(rank) != plan_.places.HostOf(peer))
            group->cost.bytes_between_hosts += sent;
        }
      }
    }
  }

  std::string LayoutsText(const sbp::Layout& from, const sbp::Layout& to) const {
    return absl::StrCat(ToText(from, plan_.stage_mesh), " -> ", ToText(to, plan_.stage_mesh));
  }

  // The two stages of a boxing stand beside its layouts, so the reason is not about them.
  static std::string CauseText(const compiler::LayoutReasons& why) {
    std::vector<std::string> causes;
    for (const compiler::LayoutReason& reason : why) {
      if (reason.kind != compiler::LayoutReason::Kind::kStages) causes.push_back(ToText(reason));
    }
    return absl::StrJoin(causes, ", ");
  }

  absl::Status OfFunctions() {
    std::map<std::pair<int, int64_t>, int64_t> calls;  // by (function, stage)
    for (const ProgramItem& item : plan_.module.items) {
      if (item.kind != ItemKind::kCall || item.inputs.empty()) continue;
      const int value = item.outputs.empty() ? item.inputs[0] : item.outputs[0];
      calls[{item.function, plan_.module.values[value].stage}] +=
          compiler::TimesPerUpdate(plan_, item.frequency);
    }
    for (const auto& [key, times] : calls) {
      const compiler::Function& function = plan_.module.functions[key.first];
      WEIR_ASSIGN_OR_RETURN(const compiler::SegmentedFunction segmented,
                            compiler::CutSegments(function, plan_.places));
      for (const TransferBundle& transfers : segmented.transfers) {
        std::vector<std::string> names;
        const Bundle bundle{transfers_.Joined(transfers.moved.At(key.second)), times};
        for (size_t k = 0; k < transfers.nodes.size(); ++k) {
          const compiler::Value& from =
              function.values[function.nodes[transfers.nodes[k]].inputs[0]];
          names.push_back(from.name);
        }
        const compiler::Node& first = function.nodes[transfers.nodes[0]];
        BoxingCost cost;
        cost.name = absl::StrCat(Listed(names), " in ", function.name);
        cost.layouts = LayoutsText(function.values[first.inputs[0]].layout,
                                   function.values[first.outputs[0]].layout);
        const compiler::Value& arrives = function.values[first.inputs[0]];
        cost.cause = CauseText(
            ReasonsOfChange(arrives.why, arrives.layout, function.values[first.outputs[0]].layout));
        Add(absl::StrCat("f", key.first, ".", transfers.nodes[0]), std::move(cost), bundle);
      }
    }
    return absl::OkStatus();
  }

  absl::Status OfProgram() {
    for (const ProgramItem& item : plan_.module.items) {
      if (item.kind != ItemKind::kBoxing) continue;
      WEIR_ASSIGN_OR_RETURN(compiler::MovedTensors moved,
                            transfers_.Plan(plan_.module, item, plan_.places));
      const Bundle bundle{std::move(moved), compiler::TimesPerUpdate(plan_, item.frequency)};
      const ProgramValue& from = plan_.module.values[item.inputs[0]];
      const ProgramValue& to = plan_.module.values[item.outputs[0]];
      BoxingCost cost;
      cost.name = GradientsOf(item.name);
      if (cost.name.empty()) cost.name = item.name;
      cost.layouts = LayoutsText(from.layout, to.layout);
      if (from.stage != to.stage)
        cost.stages = absl::StrCat("stage ", from.stage, " -> ", to.stage);
      cost.cause = CauseText(item.why);
      const std::string key =
          absl::StrCat("p", WithoutLayer(item.name), " ", cost.layouts, " ", cost.stages);
      Add(key, std::move(cost), bundle);
    }
    return absl::OkStatus();
  }

  const compiler::LogicalPlan& plan_;
  compiler::TransferFactory transfers_;
  std::map<std::string, Group> groups_;
  std::vector<std::string> order_;  // keys, in the order of arrival
};

int64_t ArenaOfFirstRank(const compiler::LogicalPlan& plan) {
  const absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(plan, RankId(0));
  return lowered.ok() ? lowered->arena_bytes() : 0;
}

}  // namespace

absl::StatusOr<std::vector<BoxingCost>> CostsOfBoxings(const compiler::LogicalPlan& plan) {
  return CostsOfPlan(plan).Run();
}

std::vector<CostlyRule> FindCostlyRules(
    const compiler::LogicalPlan& plan, const compiler::CostModel& costs,
    const std::function<double(const compiler::LogicalPlan& plan)>& step_ns_of) {
  std::vector<CostlyRule> found;
  const absl::StatusOr<int64_t> bytes = compiler::BytesPerStep(plan);
  if (!bytes.ok() || *bytes == 0 || plan.module.items.size() > kItemsTried) return found;
  double step_ns = 0;
  size_t tried = 0;
  for (int r = 0; r < plan.job->rule_size() && tried < kRulesTried; ++r) {
    const proto::Rule& rule = plan.job->rule(r);
    const int axis = plan.stage_mesh.AxisIndex(rule.axis());
    if (axis < 0 || plan.stage_mesh.size(axis) < 2) continue;
    ++tried;
    proto::Job job = *plan.job;
    job.mutable_rule()->DeleteSubrange(r, 1);
    compiler::CompileOptions options;
    options.mode = plan.mode;
    options.costs = &costs;
    const absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> without =
        compiler::CompileJob(job, options);
    if (!without.ok() || !compiler::CheckMeshUse(**without).ok()) continue;
    const absl::StatusOr<int64_t> bytes_without = compiler::BytesPerStep(**without);
    if (!bytes_without.ok() ||
        static_cast<double>(*bytes_without) > kMuchLess * static_cast<double>(*bytes))
      continue;
    // Fewer bytes are no gain if every device then does the same work by itself.
    if (step_ns == 0) step_ns = step_ns_of(plan);
    const double step_ns_without = step_ns_of(**without);
    if (step_ns_without <= 0 || step_ns_without > step_ns) continue;
    found.push_back({absl::StrCat(rule.dim(), " -> ", rule.axis()), static_cast<double>(*bytes),
                     static_cast<double>(*bytes_without), step_ns, step_ns_without,
                     ArenaOfFirstRank(plan), ArenaOfFirstRank(**without)});
  }
  return found;
}

}  // namespace weir::plan
