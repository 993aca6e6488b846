#include "tools/trace/transfers.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/unit_text.h"
#include "tools/trace/report_text.h"

namespace weir::trace {
namespace {

constexpr size_t kTextColumn = 61;  // of continued names

class TransferFinder {
 public:
  explicit TransferFinder(const RecordedRun& run)
      : run_(run), first_(run.times.FirstSteady()), begin_(run.times.steps[first_].begin) {}

  std::vector<TransferRow> Find() && {
    for (const RecordedRegister& r : run_.registers) {
      if (r.crosses_ranks && r.producer.actor.has_value() && !r.consumers.empty()) AddRegister(r);
    }
    int64_t num_queues = 0;
    for (const RecordedRank& rank : run_.ranks) {
      num_queues += rank.num_queues;
      for (const RecordedAct& act : rank.acts) AddWait(rank, act);
    }
    std::vector<TransferRow> rows;
    for (auto& [name, row] : rows_) {
      row.name = name;
      row.method = name.substr(0, name.find(' '));
      row.late_ns_per_step /= static_cast<double>(num_queues);
      row.under_way_ns_per_step /= static_cast<double>(num_queues);
      rows.push_back(std::move(row));
    }
    const auto size = [](const TransferRow& row) {
      return std::make_tuple(row.late_ns_per_step + row.under_way_ns_per_step, row.bytes_per_step);
    };
    std::stable_sort(rows.begin(), rows.end(), [&size](const TransferRow& a, const TransferRow& b) {
      return size(a) > size(b);
    });
    return rows;
  }

 private:
  double steps() const { return static_cast<double>(run_.times.steps.size() - first_); }
  int64_t Inside(int64_t from, int64_t to) const { return run_.times.Inside(from, to, first_); }
  void AddRegister(const RecordedRegister& r) {
    const std::string name = LayerFamily(r.family);
    TransferRow& row = rows_[name];
    // Each rank of the reader's class gets as much from a rank of its own.
    const int64_t readers =
        run_.ranks[run_.actors[r.consumers[0].actor].rank_index].stands_for.size();
    const double messages = run_.TokensPerStep(r) * static_cast<double>(readers);
    if (row.note == nullptr) row.note = r.note;
    row.registers += readers;
    row.messages_per_step += messages;
    row.bytes_per_step += messages * static_cast<double>(r.bytes);
    if (links_[name].emplace(run_.SenderOf(r), run_.ReceiverOf(r)).second) row.links += readers;
  }

  // Adds the time in which the queue of `act` waited for a message.
  void AddWait(const RecordedRank& rank, const RecordedAct& act) {
    if (act.wait != RecordedAct::Wait::kInput || act.start < begin_) return;
    const RecordedRegister& r = run_.registers[act.waited_register];
    const RecordedAct* sender = r.crosses_ranks ? run_.Cause(act) : nullptr;
    if (sender == nullptr) return;
    TransferRow& row = rows_[LayerFamily(r.family)];
    const int64_t ready = std::min(act.ready, act.start);
    const int64_t from = std::min(std::max(rank.FreeSince(act, begin_), begin_), ready);
    const int64_t sent = std::clamp(sender->end, from, ready);
    row.late_ns_per_step += static_cast<double>(Inside(from, sent)) / steps();
    row.under_way_ns_per_step += static_cast<double>(Inside(sent, ready)) / steps();
    if (ready <= sender->end || r.bytes == 0) return;
    ++row.timed;
    row.timed_bytes += static_cast<double>(r.bytes);
    row.timed_ns += static_cast<double>(ready - sender->end);
    row.planned_ns += static_cast<double>(r.planned_way_ns);
  }

  const RecordedRun& run_;
  const size_t first_;
  const int64_t begin_;
  std::map<std::string, TransferRow> rows_;  // by exchange, of all layers
  std::map<std::string, std::set<std::pair<RankId, RankId>>> links_;
};

std::string SpeedText(double bytes_per_second) {
  return bytes_per_second > 0 ? absl::StrFormat("%.2f", bytes_per_second * 1e-9) : "";
}

}  // namespace

std::vector<TransferRow> FindTransfers(const RecordedRun& run) {
  return TransferFinder(run).Find();
}

std::string TransfersText(const std::vector<TransferRow>& rows, size_t rows_max) {
  if (rows.empty() || rows_max == 0) return "";
  std::string text =
      "\ntransfers: what devices waited for in a step, mean of all, and the GB/s of the messages "
      "that "
      "were\n  waited for, beside those that the plan expected of the link\n"
      "   on its way   not yet sent       bytes    GB/s  planned  boxing\n";
  for (size_t i = 0; i < rows.size() && i < rows_max; ++i) {
    const TransferRow& row = rows[i];
    AppendLine(
        absl::StrFormat("%13s %14s %11s %7s %8s  %s", MillisecondsText(row.under_way_ns_per_step),
                        MillisecondsText(row.late_ns_per_step), BytesText(row.bytes_per_step),
                        SpeedText(row.bytes_per_second()),
                        SpeedText(row.planned_bytes_per_second()), row.name),
        kTextColumn, &text);
    if (row.note == nullptr) continue;
    const std::string why = WhyText(*row.note);
    AppendLine(absl::StrCat("      ", ChangesText(*row.note), why.empty() ? "" : "; why: ", why), 8,
               &text);
  }
  if (rows.size() > rows_max) absl::StrAppend(&text, "  (", rows.size() - rows_max, " more)\n");
  return text;
}

}  // namespace weir::trace
