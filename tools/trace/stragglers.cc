#include "tools/trace/stragglers.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "tools/trace/report_text.h"

namespace weir::trace {
namespace {

// The least share of the time in acts that must be measured. With a smaller share, the acts whose
// CPU time is known are mainly acts that others interrupted.
constexpr double kMeasuredMin = 0.3;

// Identifies acts that do the same work on different ranks.
using Work =
    std::tuple<std::string, std::string, int64_t>;  // phase, family of the function, planned ns

struct Done {
  double ns = 0;
  int64_t acts = 0;
  double mean() const { return ns / static_cast<double>(std::max<int64_t>(1, acts)); }
};

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

class Comparison {
 public:
  explicit Comparison(const RecordedRun& run)
      : run_(run), first_step_(run.times.steps[run.times.FirstSteady()].step) {}

  SpeedReport Compare() {
    for (const RecordedRank& rank : run_.ranks) Sum(rank);
    SpeedReport report;
    for (const RecordedRank& rank : run_.ranks) {
      const Straggler all = CompareRank(rank.rank);
      const auto& [measured, cpu] = cpu_[rank.rank];
      const double busy = busy_[rank.rank];
      report.devices.push_back(
          {rank.rank, all.factor, busy / steps(),
           measured > kMeasuredMin * busy ? std::min(1.0, cpu / measured) : -1});
      const double step_ns =
          static_cast<double>(run_.times.SumFrom(run_.times.FirstSteady())) / steps();
      if (all.factor < kStragglerFactorMin || all.more_ns_per_step < kStragglerShareMin * step_ns)
        continue;
      report.stragglers.push_back(all);
    }
    std::stable_sort(report.stragglers.begin(), report.stragglers.end(),
                     [](const Straggler& a, const Straggler& b) { return a.factor > b.factor; });
    return report;
  }

 private:
  double steps() const { return static_cast<double>(run_.last_step - first_step_ + 1); }

  void Sum(const RecordedRank& rank) {
    for (const RecordedAct& act : rank.acts) {
      if (act.step < first_step_ || act.step > run_.last_step) continue;
      const double ns = static_cast<double>(act.end - act.start);
      busy_[rank.rank] += ns;
      if (act.cpu_ns >= 0) {
        auto& [measured, cpu] = cpu_[rank.rank];
        measured += ns;
        cpu += static_cast<double>(act.cpu_ns);
      }
      const RecordedActor& actor = run_.actors[act.actor];
      if (actor.phase == "data" || actor.phase == "metric")
        continue;  // files and reports are not the device's
      Done& done = done_[{actor.phase, LayerFamily(actor.function), actor.planned_ns}][rank.rank];
      done.ns += ns;
      ++done.acts;
    }
  }

  Straggler CompareRank(RankId rank) const {
    Straggler straggler;
    straggler.rank = rank;
    std::set<RankId> peers;
    std::map<std::string, SlowFunction> functions;
    double own = 0, others = 0;
    for (const auto& [work, by_rank] : done_) {
      auto mine = by_rank.find(rank);
      if (mine == by_rank.end() || by_rank.size() < 2) continue;
      std::vector<double> means;
      for (const auto& [peer, done] : by_rank) {
        if (peer == rank) continue;
        means.push_back(done.mean());
        peers.insert(peer);
      }
      const double acts = static_cast<double>(mine->second.acts),
                   elsewhere = MedianOf(std::move(means));
      own += mine->second.ns;
      others += elsewhere * acts;
      SlowFunction& function = functions[std::get<1>(work)];
      function.name = std::get<1>(work);
      function.own_ns = mine->second.mean();
      function.others_ns = elsewhere;
      function.more_ns_per_step += (mine->second.ns - elsewhere * acts) / steps();
    }
    if (others <= 0) return straggler;
    straggler.factor = own / others;
    straggler.more_ns_per_step = (own - others) / steps();
    straggler.peers.assign(peers.begin(), peers.end());
    for (auto& [name, function] : functions) straggler.functions.push_back(std::move(function));
    std::stable_sort(straggler.functions.begin(), straggler.functions.end(),
                     [](const SlowFunction& a, const SlowFunction& b) {
                       return a.more_ns_per_step > b.more_ns_per_step;
                     });
    return straggler;
  }

  const RecordedRun& run_;
  const int64_t first_step_;
  std::map<Work, std::map<RankId, Done>> done_;
  std::map<RankId, double> busy_;  // time in acts
  // cpu_[rank] is the time in measured acts of the rank, and the CPU time of these acts.
  std::map<RankId, std::pair<double, double>> cpu_;
};

}  // namespace

SpeedReport CompareRanks(const RecordedRun& run) { return Comparison(run).Compare(); }

}  // namespace weir::trace
