#include "tools/view/run_bundle.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/base/id_vector.h"
#include "runtime/base/status.h"
#include "runtime/trace/trace_names.h"
#include "tools/trace/diff_json.h"
#include "tools/trace/last_state.h"
#include "tools/trace/rank_classes.h"
#include "tools/trace/recorded_run.h"
#include "tools/trace/register_fill.h"
#include "tools/trace/run_diff.h"
#include "tools/trace/trace_json.h"
#include "tools/trace/trace_report.h"
#include "tools/trace/why_slow.h"
#include "tools/view/bundle_writer.h"
#include "tools/view/path_columns.h"
#include "tools/view/planned_columns.h"

namespace weir::view {
namespace {

using trace::kTraceRanks;
using trace::RecordedAct;
using trace::RecordedActorId;
using trace::RecordedRank;
using trace::RecordedRankId;
using trace::RecordedRegisterId;
using trace::RecordedRun;
using Json = BundleWriter::Json;

constexpr size_t kMissingShownMax = 64;  // ranks that the trace lacks

// An ActPlace is an act of a run: its rank and its place in the acts of the rank.
struct ActPlace {
  RecordedRankId rank;
  int32_t place = 0;
};

// The parts of the analysis that are columns.
struct Analysis {
  trace::StepPaths paths;
  std::vector<trace::ReplayedAct> as_planned;
};

class BundleBuilder {
 public:
  explicit BundleBuilder(const RecordedRun& run) : run_(run), begin_(BeginOf(run)) { OrderActs(); }

  // Return the whole bundle, and its two parts. `head` has the fields of the object that do not
  // describe the run.
  std::string Whole(const Json& report, const Analysis& analysis,
                    const std::optional<trace::LastState>& last_state, Json head) {
    BundleWriter writer;
    AddRun(&writer);
    AddAnalysis(analysis, &writer);
    Json object = ObjectOf(last_state, std::move(head));
    object["report"] = report;
    return std::move(writer).Finish(std::move(object));
  }
  std::string RunPart(const std::optional<trace::LastState>& last_state, Json head) {
    BundleWriter writer;
    AddRun(&writer);
    Json object = ObjectOf(last_state, std::move(head));
    object["pending"] = true;
    return std::move(writer).Finish(std::move(object));
  }
  std::string AnalysisPart(const Json& report, const Analysis& analysis, Json head) const {
    BundleWriter writer;
    AddAnalysis(analysis, &writer);
    head["report"] = report;
    return std::move(writer).Finish(std::move(head));
  }

 private:
  static int64_t BeginOf(const RecordedRun& run) {
    std::optional<int64_t> begin;
    if (!run.times.steps.empty()) begin = run.times.steps.front().begin;
    for (const RecordedRank& rank : run.ranks) {
      for (const RecordedAct& act : rank.acts)
        begin = std::min(begin.value_or(act.start), act.start);
    }
    return begin.value_or(0);
  }

  // Numbers all acts: queue by queue, and on a queue by their begin.
  void OrderActs() {
    std::vector<std::vector<ActPlace>> by_queue;
    for (const RecordedRankId r : run_.ranks.ids()) {
      const RecordedRank& rank = run_.ranks[r];
      by_queue.resize(rank.first_queue + rank.num_queues);
      index_of_.emplace_back(rank.acts.size(), -1);
      for (size_t i = 0; i < rank.acts.size(); ++i) {
        const int32_t queue = run_.actors[rank.acts[i].actor].queue.value();
        by_queue[queue].push_back({r, static_cast<int32_t>(i)});
      }
    }
    for (std::vector<ActPlace>& acts : by_queue) {
      first_act_of_queue_.push_back(static_cast<uint32_t>(order_.size()));
      std::stable_sort(acts.begin(), acts.end(), [this](const ActPlace& a, const ActPlace& b) {
        return At(a).start < At(b).start;
      });
      for (const ActPlace& act : acts) {
        index_of_[act.rank][act.place] = static_cast<int32_t>(order_.size());
        order_.push_back(act);
      }
    }
    // The rows of missing ranks come last and have no acts.
    first_act_of_queue_.resize(first_act_of_queue_.size() + 1 + NumMissingShown(),
                               static_cast<uint32_t>(order_.size()));
  }
  size_t NumMissingShown() const { return std::min(run_.missing.size(), kMissingShownMax); }

  const RecordedAct& At(const ActPlace& act) const { return run_.ranks[act.rank].acts[act.place]; }
  // Returns the number of an act of `run_`, or -1 for null.
  int32_t IndexOf(const RecordedAct* act) const {
    if (act == nullptr) return -1;
    const RecordedRankId rank = run_.actors[act->actor].rank_index;
    return index_of_[rank][act - run_.ranks[rank].acts.data()];
  }
  // Returns the time for which the queue of an act waited before the act.
  double WaitNs(const ActPlace& place) const {
    const RecordedAct& act = At(place);
    const int64_t from = run_.ranks[place.rank].FreeSince(act, begin_);
    return static_cast<double>(std::max<int64_t>(0, std::min(act.ready, act.start) - from));
  }

  void AddRun(BundleWriter* writer) {
    AddActs(writer);
    AddActors(writer);
    AddRegisters(writer);
  }
  void AddAnalysis(const Analysis& analysis, BundleWriter* writer) const {
    AddPathColumns(
        run_, analysis.paths, begin_, [this](const RecordedAct* act) { return IndexOf(act); },
        writer);
    AddPlannedColumns(run_, analysis.as_planned, writer);
    AddFills(writer);
  }
  Json ObjectOf(const std::optional<trace::LastState>& last_state, Json head) const {
    head["ranks"] = Ranks();
    head["queues"] = Queues();
    head["steps"] = Steps();
    if (last_state.has_value()) {
      head["open_acts"] = OpenActs(*last_state);
      head["failures"] = Failures(*last_state);
    }
    return head;
  }

  void AddActs(BundleWriter* writer) {
    const size_t count = order_.size();
    std::vector<double> begin(count);
    std::vector<float> ns(count), wait_ns(count);
    std::vector<uint32_t> actor(count);
    std::vector<int32_t> step(count), micro_batch(count), chunk(count), waited(count, -1),
        cause(count, -1);
    std::vector<uint8_t> wait(count);
    waited_input_ns_.assign(run_.registers.size(), 0);
    waited_credit_ns_.assign(run_.registers.size(), 0);
    for (size_t i = 0; i < count; ++i) {
      const RecordedAct& act = At(order_[i]);
      const trace::RecordedActor& of = run_.actors[act.actor];
      begin[i] = static_cast<double>(act.start - begin_);
      ns[i] = static_cast<float>(act.end - act.start);
      actor[i] = static_cast<uint32_t>(act.actor.value());
      step[i] = static_cast<int32_t>(trace::NumberOfStep(act.step));
      micro_batch[i] = static_cast<int32_t>(of.MicroBatchOf(act.number));
      chunk[i] = static_cast<int32_t>(of.ActInStep(act.number) % of.chunks);
      if (act.wait == RecordedAct::Wait::kNone) continue;
      wait[i] = act.wait == RecordedAct::Wait::kInput ? 1 : 2;
      const double waited_ns = WaitNs(order_[i]);
      wait_ns[i] = static_cast<float>(waited_ns);
      waited[i] = act.waited_register.value();
      cause[i] = IndexOf(run_.Cause(act));
      (wait[i] == 1 ? waited_input_ns_ : waited_credit_ns_)[act.waited_register.value()] +=
          waited_ns;
    }
    writer->Add("queue_first_act", first_act_of_queue_);
    writer->Add("act_begin", begin);
    writer->Add("act_ns", ns);
    writer->Add("act_actor", actor);
    writer->Add("act_step", step);
    writer->Add("act_micro_batch", micro_batch);
    writer->Add("act_chunk", chunk);
    writer->Add("act_wait", wait);
    writer->Add("act_wait_ns", wait_ns);
    writer->Add("act_waited_register", waited);
    writer->Add("act_cause", cause);
  }

  void AddActors(BundleWriter* writer) const {
    std::vector<uint32_t> name, function, phase, rank, queue;
    std::vector<double> planned;
    for (const trace::RecordedActor& actor : run_.actors) {
      name.push_back(writer->StringId(actor.name));
      function.push_back(writer->StringId(actor.function));
      phase.push_back(writer->StringId(actor.phase));
      rank.push_back(static_cast<uint32_t>(actor.rank_index.value()));
      queue.push_back(static_cast<uint32_t>(actor.queue.value()));
      planned.push_back(static_cast<double>(actor.planned_ns));
    }
    writer->Add("actor_name", name);
    writer->Add("actor_function", function);
    writer->Add("actor_phase", phase);
    writer->Add("actor_rank", rank);
    writer->Add("actor_queue", queue);
    writer->Add("actor_planned_ns", planned);
  }

  void AddRegisters(BundleWriter* writer) const {
    std::vector<uint32_t> name, family, first_consumer = {0}, consumers;
    std::vector<int32_t> producer, slots, other_rank;
    std::vector<uint8_t> crosses;
    std::vector<double> bytes;
    for (const RecordedRegisterId id : run_.registers.ids()) {
      const trace::RecordedRegister& r = run_.registers[id];
      name.push_back(writer->StringId(r.name));
      family.push_back(writer->StringId(r.family));
      bytes.push_back(static_cast<double>(r.bytes));
      slots.push_back(static_cast<int32_t>(r.slots));
      producer.push_back(r.producer.actor.has_value() ? r.producer.actor.value() : -1);
      crosses.push_back(r.crosses_ranks ? 1 : 0);
      other_rank.push_back(r.other_rank.value());
      for (const trace::RecordedPortRef& consumer : r.consumers)
        consumers.push_back(static_cast<uint32_t>(consumer.actor.value()));
      first_consumer.push_back(static_cast<uint32_t>(consumers.size()));
    }
    writer->Add("register_name", name);
    writer->Add("register_family", family);
    writer->Add("register_bytes", bytes);
    writer->Add("register_slots", slots);
    writer->Add("register_producer", producer);
    writer->Add("register_crosses_ranks", crosses);
    writer->Add("register_other_rank", other_rank);
    writer->Add("register_waited_input_ns", waited_input_ns_);
    writer->Add("register_waited_credit_ns", waited_credit_ns_);
    writer->Add("register_first_consumer", first_consumer);
    writer->Add("consumer_actor", consumers);
  }

  // The changes take more bytes than all else, and the first picture shows none of them, so they
  // come with the analysis.
  void AddFills(BundleWriter* writer) const {
    std::vector<uint32_t> first_change = {0};
    std::vector<int32_t> most, in_use;
    std::vector<double> full_ns, at;
    for (const RecordedRegisterId id : run_.registers.ids()) {
      const trace::RegisterFill fill = FillOf(id);
      most.push_back(static_cast<int32_t>(fill.most));
      full_ns.push_back(static_cast<double>(fill.full_ns));
      for (const trace::FillChange& change : fill.changes) {
        at.push_back(static_cast<double>(change.at - begin_));
        in_use.push_back(static_cast<int32_t>(change.in_use));
      }
      first_change.push_back(static_cast<uint32_t>(at.size()));
    }
    writer->Add("register_most", most);
    writer->Add("register_full_ns", full_ns);
    writer->Add("register_first_change", first_change);
    writer->Add("change_at", at);
    writer->Add("change_in_use", in_use);
  }

  // Returns the fill of a register. It is unknown where the trace lacks the rank at the other end,
  // or has no whole step.
  trace::RegisterFill FillOf(RecordedRegisterId id) const {
    const trace::RecordedRegister& r = run_.registers[id];
    const bool has_ends = r.producer.actor.has_value() && !r.consumers.empty();
    if (run_.times.steps.empty() || (r.crosses_ranks && !has_ends)) return {};
    return trace::FindFill(run_, id);
  }

  static std::string NameOf(const RecordedRank& rank) {
    return trace::NameOfClass(rank.name, rank.stands_for);
  }
  Json Ranks() const {
    Json ranks = Json::array();
    for (const RecordedRank& rank : run_.ranks) {
      ranks.push_back({{"rank", rank.rank.value()}, {"name", NameOf(rank)}});
      if (rank.stands_for.size() == 1) continue;
      ranks.back()["stands_for"] = {{"ranks", rank.stands_for.size()},
                                    {"text", absl::StrCat("ranks ", rank.stands_for.Text())}};
    }
    for (size_t i = 0; i < NumMissingShown(); ++i) {
      ranks.push_back({{"rank", run_.missing[i].value()},
                       {"name", absl::StrCat("rank ", run_.missing[i], " · not in the trace")},
                       {"missing", true}});
    }
    return ranks;
  }
  Json Queues() const {
    Json queues = Json::array();
    for (const RecordedRankId r : run_.ranks.ids()) {
      const RecordedRank& rank = run_.ranks[r];
      for (int32_t q = 0; q < rank.num_queues; ++q) {
        queues.push_back(
            {{"rank", r.value()},
             {"name",
              rank.num_queues == 1 ? NameOf(rank) : absl::StrCat(NameOf(rank), ", queue ", q)}});
      }
    }
    const Json ranks = Ranks();
    for (size_t i = run_.ranks.size(); i < ranks.size(); ++i)
      queues.push_back({{"rank", i}, {"name", ranks[i]["name"]}, {"missing", true}});
    return queues;
  }
  Json OpenActs(const trace::LastState& state) const {
    Json acts = Json::array();
    for (const trace::OpenAct& act : state.acts) {
      acts.push_back({{"queue", act.queue.value()},
                      {"since_ns", std::max<int64_t>(0, act.since - begin_)},
                      {"waits", act.need != trace::OpenAct::Need::kNothing},
                      {"text", act.Text()}});
    }
    return acts;
  }
  Json Failures(const trace::LastState& state) const {
    Json failures = Json::array();
    for (const trace::MarkedFailure& failure : state.failures) {
      Json& to = failures.emplace_back(
          Json{{"at_ns", std::max<int64_t>(0, failure.ns - begin_)}, {"text", failure.text}});
      for (const RecordedRankId rank : run_.ranks.ids()) {
        if (failure.rank.has_value() && run_.ranks[rank].rank == failure.rank)
          to["queue"] = run_.ranks[rank].first_queue;
      }
    }
    return failures;
  }
  Json Steps() const {
    Json steps = Json::array();
    for (const trace::StepTime& step : run_.times.steps) {
      steps.push_back({{"step", trace::NumberOfStep(step.step)},
                       {"begin_ns", step.begin - begin_},
                       {"end_ns", step.end - begin_},
                       {"first_of_run", step.place == trace::StepTime::Place::kFirstOfRun}});
    }
    return steps;
  }

  const RecordedRun& run_;
  const int64_t begin_;
  std::vector<ActPlace> order_;
  std::vector<uint32_t> first_act_of_queue_;
  IdVector<RecordedRankId, std::vector<int32_t>> index_of_;  // by place in the acts of the rank
  std::vector<double> waited_input_ns_, waited_credit_ns_;   // by register
};

// A RunToShow is a run of which the trace may lack ranks and whole steps.
struct RunToShow {
  RecordedRun run;
  absl::Status replays;  // why the run cannot be replayed
  std::optional<trace::LastState> last_state;
};

absl::StatusOr<RunToShow> ReadRunToShow(const trace::TraceReader& reader) {
  RunToShow show;
  absl::StatusOr<RecordedRun> run = trace::ReadRecordedRun(reader);
  show.replays = run.status();
  if (!run.ok()) run = trace::ReadRunWithGaps(reader);
  WEIR_RETURN_IF_ERROR(run.status());
  show.run = *std::move(run);
  show.last_state = trace::FindLastState(show.run);
  return show;
}

absl::StatusOr<trace::WhySlow> WhyOf(const RunToShow& show, const BundleTaker& taker) {
  if (!show.replays.ok()) return show.replays;
  trace::WhySlowOptions options;
  options.tell = taker.tell;
  return trace::FindWhySlow(show.run, options);
}

Json ReportOf(const RunToShow& show, const trace::TraceReader& reader,
              const absl::StatusOr<trace::WhySlow>& why) {
  return Json::parse(trace::ToJson(trace::MakeTraceReport(reader), why, show.last_state));
}

Analysis AnalysisOf(const absl::StatusOr<trace::WhySlow>& why) {
  return why.ok() ? Analysis{why->steps, why->as_planned} : Analysis{};
}

// Returns the parts of the report that are known before the analysis.
Json HeadOfReport(const RecordedRun& run, const trace::TraceReader& reader) {
  Json report = {{"plan", reader.JobText("plan")},
                 {"ranks", reader.JobNumber(kTraceRanks)},
                 {"stages", std::max<int64_t>(1, reader.JobNumber("stages"))},
                 {"micro_batches", std::max<int64_t>(1, reader.JobNumber("micro-batches"))}};
  if (const std::string text = trace::SymmetryText(run.Classes()); !text.empty())
    report["by_symmetry"] = {{"text", text}};
  return report;
}

// Returns `head` with the difference from the first run to the second.
absl::StatusOr<Json> WithDiff(const RunToShow& show, absl::string_view title,
                              const trace::TraceReader& other, absl::string_view other_title,
                              Json head) {
  WEIR_RETURN_IF_ERROR(show.replays);
  WEIR_ASSIGN_OR_RETURN(const RecordedRun second, trace::ReadRecordedRun(other));
  head["diff"] = Json::parse(trace::ToJson(trace::CompareRuns(show.run, second), std::string(title),
                                           std::string(other_title)));
  return head;
}

std::string WholeBundle(const RunToShow& show, const trace::TraceReader& reader, Json head) {
  const absl::StatusOr<trace::WhySlow> why = WhyOf(show, {});
  return BundleBuilder(show.run).Whole(ReportOf(show, reader, why), AnalysisOf(why),
                                       show.last_state, std::move(head));
}

}  // namespace

absl::StatusOr<std::string> MakeRunBundle(const trace::TraceReader& reader,
                                          absl::string_view title) {
  WEIR_ASSIGN_OR_RETURN(const RunToShow show, ReadRunToShow(reader));
  return WholeBundle(show, reader, {{"title", std::string(title)}});
}

absl::StatusOr<std::string> MakeRunBundle(const trace::TraceReader& reader, absl::string_view title,
                                          const trace::TraceReader& other,
                                          absl::string_view other_title) {
  WEIR_ASSIGN_OR_RETURN(const RunToShow show, ReadRunToShow(reader));
  WEIR_ASSIGN_OR_RETURN(Json head,
                        WithDiff(show, title, other, other_title, {{"title", std::string(title)}}));
  return WholeBundle(show, reader, std::move(head));
}

absl::StatusOr<std::string> MakeRunBundleInParts(const trace::TraceReader& reader,
                                                 absl::string_view title,
                                                 const trace::TraceReader* other,
                                                 absl::string_view other_title,
                                                 const BundleTaker& taker) {
  taker.tell("reads the acts of the trace");
  WEIR_ASSIGN_OR_RETURN(const RunToShow show, ReadRunToShow(reader));
  if (other != nullptr) WEIR_RETURN_IF_ERROR(show.replays);
  BundleBuilder builder(show.run);
  taker.run(builder.RunPart(show.last_state, {{"title", std::string(title)},
                                              {"report", HeadOfReport(show.run, reader)}}));
  const absl::StatusOr<trace::WhySlow> why = WhyOf(show, taker);
  Json head = Json::object();
  if (other != nullptr) {
    taker.tell("compares the two runs");
    WEIR_ASSIGN_OR_RETURN(head, WithDiff(show, title, *other, other_title, std::move(head)));
  }
  taker.tell("writes the report");
  return builder.AnalysisPart(ReportOf(show, reader, why), AnalysisOf(why), std::move(head));
}

absl::StatusOr<std::string> MakePlanBundle(const Json& plan, const trace::TraceReader& simulated,
                                           absl::string_view title) {
  WEIR_ASSIGN_OR_RETURN(const RunToShow show, ReadRunToShow(simulated));
  return WholeBundle(show, simulated, {{"title", std::string(title)}, {"plan", plan}});
}

std::string MakePlanBundle(const Json& plan, absl::string_view no_run, absl::string_view title) {
  return BundleWriter().Finish(
      {{"title", std::string(title)}, {"plan", plan}, {"no_run", std::string(no_run)}});
}

}  // namespace weir::view
