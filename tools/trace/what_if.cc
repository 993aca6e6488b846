#include "tools/trace/what_if.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/name_pattern.h"
#include "runtime/base/status.h"
#include "tools/trace/report_text.h"

namespace weir::trace {
namespace {

constexpr int64_t kPlenty = 1000;     // of slots: more than a run can use
constexpr int kNamesListed = 8;       // in a message
constexpr int kRegistersTried = 4;    // one by one
constexpr int kRegistersJoined = 12;  // at most, one after another
// The least number of steps in a trace: with fewer steps, the gain of more slots is unknown.
constexpr size_t kStepsForSlots = 3;
// After so many changes in a row without a gain, the rest will not help either.
constexpr int kJoinedForNothing = 5;
constexpr int kFunctionsTried = 5;
constexpr double kGainMin = 0.002;               // of the step; less is not told
constexpr int64_t kActsReplayedMax = 1'000'000;  // by all that is tried unasked: about a second
constexpr int64_t kTriesMin = 6;                 // of long traces

bool Matches(absl::string_view pattern, absl::string_view name) {
  return FitsPattern(name, pattern, Wildcards::kStar);
}

// Returns whether the register is a place that is written again when all have read it, as a weight
// is; such a register keeps its number of slots.
bool IsVariable(const RecordedRegister& r) { return r.initial_tokens == r.slots; }

absl::Status NotUnderstood(absl::string_view spec, const std::string& expected,
                           const std::string& found) {
  return Rejected({"W0533", absl::StrCat("--what-if '", spec, "'"), expected, found, ""});
}

std::string NoneButThese(const std::set<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(absl::StrCat("'", name, "'"));
  return absl::StrCat("nothing of that name; there are ",
                      quoted.empty() ? "none" : Listed(quoted, kNamesListed));
}

// Returns "0-1": from the writer's rank to the reader's.
std::string LinkOf(const RecordedRun& run, const RecordedRegister& r) {
  return absl::StrCat(run.SenderOf(r), "-", run.ReceiverOf(r));
}

// A ChangeParser finds the registers of a run under the changes of one text.
class ChangeParser {
 public:
  explicit ChangeParser(const RecordedRun& run) : run_(run) {
    for (const RecordedRegister& r : run.registers) changes_.slots.push_back(r.slots);
    changes_.transfer_factor.assign(run.registers.size(), 1);
    changes_.act_factor.assign(run.actors.size(), 1);
  }

  absl::Status Add(absl::string_view spec) {
    for (absl::string_view part : absl::StrSplit(spec, ';')) {
      part = absl::StripAsciiWhitespace(part);
      const std::pair<absl::string_view, absl::string_view> kind =
          absl::StrSplit(part, absl::MaxSplits(':', 1));
      if (kind.first == "free") {
        WEIR_RETURN_IF_ERROR(AddFree(spec, kind.second));
        continue;
      }
      const size_t equals = kind.second.rfind('=');
      const bool known = kind.first == "slots" || kind.first == "link" || kind.first == "rank";
      if (!known || equals == absl::string_view::npos) {
        return NotUnderstood(spec,
                             "slots:NAME=N, slots:NAME=+N, free:NAME, link:A-B=F, link:all=F, "
                             "rank:R=F or rank:all=F, joined by ';'",
                             absl::StrCat("'", part, "'"));
      }
      const absl::string_view name = kind.second.substr(0, equals),
                              value = kind.second.substr(equals + 1);
      WEIR_RETURN_IF_ERROR(kind.first == "slots"  ? AddSlots(spec, name, value)
                           : kind.first == "link" ? AddLink(spec, name, value)
                                                  : AddRank(spec, name, value));
    }
    return absl::OkStatus();
  }

  const ReplayChanges& changes() const { return changes_; }
  std::string about() const { return absl::StrJoin(about_, "; "); }
  int64_t more_bytes() const {
    int64_t bytes = 0;
    for (const RecordedRegisterId i : run_.registers.ids()) {
      bytes += (changes_.slots[i] - run_.registers[i].slots) * run_.registers[i].bytes;
    }
    return bytes;
  }

 private:
  absl::Status AddFree(absl::string_view spec, absl::string_view name) {
    std::set<std::string> names;
    bool found = false;
    for (const RecordedActorId a : run_.actors.ids()) {
      const RecordedActor& actor = run_.actors[a];
      names.insert(actor.function);
      if (!Matches(name, actor.function) && !Matches(name, actor.name) && name != actor.phase)
        continue;
      changes_.act_factor[a] = 0;
      found = true;
    }
    if (!found)
      return NotUnderstood(spec, "the name of a function, actor or phase of this run",
                           NoneButThese(names));
    about_.push_back(absl::StrCat("`", name, "` takes no time"));
    return absl::OkStatus();
  }

  absl::Status AddSlots(absl::string_view spec, absl::string_view name, absl::string_view value) {
    const bool more = absl::ConsumePrefix(&value, "+");
    int64_t slots = 0;
    if (!absl::SimpleAtoi(value, &slots) || slots < 1 || slots > kPlenty) {
      return NotUnderstood(spec, absl::StrCat("a number of slots from 1 to ", kPlenty),
                           absl::StrCat("'", value, "'"));
    }
    std::set<std::string> names;
    std::set<int64_t> before;
    for (const RecordedRegisterId i : run_.registers.ids()) {
      const RecordedRegister& r = run_.registers[i];
      if (IsVariable(r)) continue;
      names.insert(r.family);
      if (!Matches(name, r.family) && !Matches(name, r.name)) continue;
      changes_.slots[i] =
          std::max(more ? r.slots + slots : slots, std::max<int64_t>(1, r.initial_tokens));
      before.insert(r.slots);
    }
    if (before.empty())
      return NotUnderstood(spec, "the name of a register of this run that is no variable",
                           NoneButThese(names));
    const std::string had = *before.begin() == *before.rbegin()
                                ? absl::StrCat(*before.begin())
                                : absl::StrCat(*before.begin(), " to ", *before.rbegin());
    if (more && slots == kPlenty) {
      about_.push_back("as many slots as wanted everywhere");
    } else {
      about_.push_back(absl::StrCat(more ? "+" : "", slots,
                                    slots == 1 ? " slot of `" : " slots of `", name, "` (has ", had,
                                    ")"));
    }
    return absl::OkStatus();
  }

  // Returns the factor of the speed: a number above 0, or inf.
  static absl::StatusOr<double> Speed(absl::string_view spec, absl::string_view value) {
    double factor = 0;
    if (absl::SimpleAtod(value, &factor) && factor > 0) return factor;
    return NotUnderstood(spec, "how many times as fast: a number above 0, or inf",
                         absl::StrCat("'", value, "'"));
  }

  absl::Status AddRank(absl::string_view spec, absl::string_view name, absl::string_view value) {
    WEIR_ASSIGN_OR_RETURN(const double factor, Speed(spec, value));
    std::set<std::string> names;
    bool found = false;
    for (const RecordedActorId a : run_.actors.ids()) {
      const std::string rank = absl::StrCat(run_.ranks[run_.actors[a].rank_index].rank);
      names.insert(rank);
      if (name != "all" && name != rank) continue;
      changes_.act_factor[a] /= factor;
      found = true;
    }
    if (!found) return NotUnderstood(spec, "'all' or a rank of this run", NoneButThese(names));
    const std::string who = name == "all" ? "every rank" : absl::StrCat("rank ", name);
    about_.push_back(std::isinf(factor) ? absl::StrCat(who, " takes no time")
                                        : absl::StrFormat("%s is %g times as fast", who, factor));
    return absl::OkStatus();
  }

  absl::Status AddLink(absl::string_view spec, absl::string_view name, absl::string_view value) {
    WEIR_ASSIGN_OR_RETURN(const double factor, Speed(spec, value));
    std::set<std::string> names;
    bool found = false;
    for (const RecordedRegisterId i : run_.registers.ids()) {
      const RecordedRegister& r = run_.registers[i];
      if (!r.crosses_ranks) continue;
      const std::string link = LinkOf(run_, r);
      names.insert(link);
      if (name != "all" && name != link) continue;
      changes_.transfer_factor[i] = 1 / factor;
      found = true;
    }
    if (!found)
      return NotUnderstood(spec, "'all' or the ranks of a link of this run", NoneButThese(names));
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(name, absl::MaxSplits('-', 1));
    const std::string link =
        name == "all" ? "every link"
                      : absl::StrCat("the link from rank ", ends.first, " to ", ends.second);
    about_.push_back(std::isinf(factor) ? absl::StrCat(link, " takes no time")
                                        : absl::StrFormat("%s %g times as fast", link, factor));
    return absl::OkStatus();
  }

  const RecordedRun& run_;
  ReplayChanges changes_;
  std::vector<std::string> about_;
};

// Returns whether a text can name the family: a name must not have the signs that separate changes.
bool CanBeNamed(const std::string& name) {
  return !name.empty() && name.find(';') == std::string::npos;
}

// A WhatIfSearch tries the changes that the replay and the path suggest.
class WhatIfSearch {
 public:
  WhatIfSearch(const Replayer& replayer, const RecordedRun& run, const CriticalPath& path,
               const std::vector<Straggler>& stragglers,
               const std::function<void(const std::string& doing)>& tell)
      : replayer_(replayer),
        run_(run),
        path_(path),
        stragglers_(stragglers),
        tell_(tell),
        as_it_was_(replayer.sample()) {}

  std::vector<WhatIfRow> Find() {
    if (!as_it_was_.finished) return {};
    int64_t acts = 0;
    for (const RecordedActor& actor : run_.actors)
      acts +=
          actor.ActsBefore(run_.last_step + 1) - actor.ActsBefore(replayer_.sample_first_step());
    tries_left_ = std::max(kTriesMin, kActsReplayedMax / std::max<int64_t>(1, acts));
    // The most telling changes come first, in case there is time for few. More slots let steps
    // overlap. Where one step alone is counted, that overlap moves the ends of two steps together
    // and looks like a gain.
    const bool tells_overlap = replayer_.recorded().step_ns_of.size() >= kStepsForSlots;
    const double most = tells_overlap ? Try(absl::StrCat("slots:*=+", kPlenty)) : 0;
    TryRanks();
    TryLinks();
    TryFree();
    if (most >= kGainMin) TrySlots(most);
    std::stable_sort(rows_.begin(), rows_.end(),
                     [](const WhatIfRow& a, const WhatIfRow& b) { return a.gain > b.gain; });
    return std::move(rows_);
  }

 private:
  void TellTry() {
    if (tell_) tell_(absl::StrCat("replays the run with a change, number ", ++num_tries_));
  }
  // Keeps the row if the change gains something; returns its gain.
  double Try(const std::string& spec) {
    if (tries_left_-- <= 0) return 0;
    TellTry();
    absl::StatusOr<WhatIfRow> row = TryWhatIf(replayer_, run_, spec);
    if (!row.ok() || !row->finished) return 0;
    const double gain = row->gain;
    if (gain >= kGainMin) rows_.push_back(*std::move(row));
    return gain;
  }

  // Returns the registers that their writers waited for, most first; registers of equal layers are
  // one.
  std::vector<std::string> WaitedFor(const ReplayResult& result) const {
    std::map<std::string, int64_t> waited;
    for (const RecordedRegisterId i : run_.registers.ids()) {
      const RecordedRegister& r = run_.registers[i];
      if (result.waited_for_slot_ns[i] == 0 || IsVariable(r) || !CanBeNamed(r.family)) continue;
      waited[LayerFamily(r.family)] += result.waited_for_slot_ns[i];
    }
    std::vector<std::pair<int64_t, std::string>> order;
    for (const auto& [name, ns] : waited) order.emplace_back(-ns, name);
    std::sort(order.begin(), order.end());
    std::vector<std::string> names;
    for (auto& [ns, name] : order) names.push_back(std::move(name));
    return names;
  }

  // Tries one register at a time. A full register often hides the next, so the function then widens
  // one register after another until little is left of `most`, the gain that any number of slots
  // could give.
  void TrySlots(double most) {
    std::vector<std::string> names = WaitedFor(as_it_was_);
    double best = 0;
    for (size_t i = 0; i < names.size() && i < kRegistersTried; ++i) {
      best = std::max(best, Try(absl::StrCat("slots:", names[i], "=+1")));
    }
    std::map<std::string, int> more;
    double gain = best;
    int added = 0, for_nothing = 0;
    for (; added < kRegistersJoined && gain < 0.9 * most && !names.empty() && tries_left_-- > 1;
         ++added) {
      ++more[names[0]];
      TellTry();
      ChangeParser parser(run_);
      if (!parser.Add(Joined(more)).ok()) return;
      const ReplayResult result = replayer_.Play(parser.changes());
      if (!result.finished) return;
      const double before = gain;
      gain = 1 - result.step_ns / as_it_was_.step_ns;
      for_nothing = gain < before + kGainMin ? for_nothing + 1 : 0;
      if (for_nothing == kJoinedForNothing) break;
      names = WaitedFor(result);
    }
    if (added > 1 && gain > best + kGainMin) Try(Joined(more));
  }
  static std::string Joined(const std::map<std::string, int>& more) {
    return absl::StrJoin(more, ";", [](std::string* out, const auto& m) {
      absl::StrAppend(out, "slots:", m.first, "=+", m.second);
    });
  }

  void TryFree() {
    std::map<std::string, double> by_function;
    for (const PathActs& acts : path_.acts) {
      if (CanBeNamed(acts.function)) by_function[LayerFamily(acts.function)] += acts.share;
    }
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [function, share] : by_function) order.emplace_back(-share, function);
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size() && i < kFunctionsTried; ++i) Try("free:" + order[i].second);
    Try("free:boxing");
  }

  void TryLinks() {
    std::set<std::string> links;
    for (const RecordedRegister& r : run_.registers) {
      if (r.crosses_ranks) links.insert(LinkOf(run_, r));
    }
    if (links.empty() || Try("link:all=inf") < kGainMin) return;
    Try("link:all=2");
    std::map<std::string, double> on_path;
    for (const PathEdge& edge : path_.edges) {
      const bool token = edge.kind == PathEdge::Kind::kToken;
      on_path[absl::StrCat(token ? edge.from : edge.to, "-", token ? edge.to : edge.from)] +=
          edge.share;
    }
    auto worst = std::max_element(on_path.begin(), on_path.end(),
                                  [](const auto& a, const auto& b) { return a.second < b.second; });
    if (links.size() > 1 && worst != on_path.end()) Try(absl::StrCat("link:", worst->first, "=2"));
  }

  // Tries each slow rank at the speed of its peers.
  void TryRanks() {
    for (const Straggler& straggler : stragglers_)
      Try(absl::StrFormat("rank:%d=%.3g", straggler.rank.value(), straggler.factor));
  }

  const Replayer& replayer_;
  const RecordedRun& run_;
  const CriticalPath& path_;
  const std::vector<Straggler>& stragglers_;
  const std::function<void(const std::string& doing)>& tell_;
  const ReplayResult& as_it_was_;
  int64_t tries_left_ = 0, num_tries_ = 0;
  std::vector<WhatIfRow> rows_;
};

}  // namespace

absl::StatusOr<WhatIfRow> TryWhatIf(const Replayer& replayer, const RecordedRun& run,
                                    absl::string_view spec) {
  ChangeParser parser(run);
  WEIR_RETURN_IF_ERROR(parser.Add(spec));
  const ReplayResult& before = replayer.sample();
  const ReplayResult after = replayer.Play(parser.changes());
  WhatIfRow row;
  row.spec = std::string(spec);
  row.about = parser.about();
  row.finished = before.finished && after.finished;
  row.more_bytes = parser.more_bytes();
  if (!row.finished) return row;
  // The change of the sample is that of the whole run.
  const double factor = after.step_ns / std::max(before.step_ns, 1.0);
  row.step_ns = replayer.sample_first_step() == run.first_step
                    ? after.step_ns
                    : replayer.as_it_was().step_ns * factor;
  row.gain = 1 - factor;
  return row;
}

std::vector<WhatIfRow> TryWhatIfs(const Replayer& replayer, const RecordedRun& run,
                                  const CriticalPath& path,
                                  const std::vector<Straggler>& stragglers,
                                  const std::function<void(const std::string& doing)>& tell) {
  return WhatIfSearch(replayer, run, path, stragglers, tell).Find();
}

}  // namespace weir::trace
