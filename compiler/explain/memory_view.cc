#include "compiler/explain/memory_view.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/dtype.h"
#include "runtime/base/rate_codec.h"
#include "runtime/base/unit_text.h"
#include "runtime/base/wrap_text.h"

namespace weir::compiler {
namespace {

// The acts of one side of a register: the acts that move each token, and their starts and ends.
struct Side {
  std::string name;
  Rate rate;
  Span span;
  Timing timing;
  const google::protobuf::RepeatedField<int64_t>* act_start_ns = nullptr;

  int64_t FirstAct(int64_t token) const { return span.FirstAct(token / span.tokens); }
  int64_t LastAct(int64_t token) const { return span.LastAct(token / span.tokens); }
};

template <typename Actor>  // ActorSpec, FarActor
Side SideOf(const Actor& actor, const proto::Span& span) {
  Side side{actor.name(), FromProto(actor.rate()), FromProto(span), FromProto(actor.timing()),
            &actor.act_start_ns()};
  side.rate.acts_per_step = std::max<int64_t>(1, side.rate.acts_per_step);
  return side;
}

// An entry of the arena: a register, or a state outside all registers.
struct Resident {
  const proto::RegisterSpec* reg = nullptr;
  const proto::StateSpec* state = nullptr;
  int64_t offset = 0, bytes = 0;
  const Side* writer = nullptr;  // null: alive all the time
  std::vector<const Side*> readers = {};
  // Set from the planned starts.
  int64_t held = 0, alive_ns = 0;
  std::string until = {};
};

// A plan with more acts gets no lifetimes of tokens, because these would take longer than all else.
constexpr int64_t kActsFollowed = int64_t{1} << 18;

char PhaseLetter(proto::ActorSpec::Phase phase) {
  switch (phase) {
    case proto::ActorSpec::FORWARD: return 'f';
    case proto::ActorSpec::BACKWARD: return 'b';
    case proto::ActorSpec::WEIGHT_GRADIENT: return 'w';
    case proto::ActorSpec::UPDATE: return 'u';
    default: return '.';
  }
}

class Viewer {
 public:
  explicit Viewer(const proto::RankPlan& plan)
      : plan_(plan),
        steps_(std::max<int64_t>(1, plan.certificate().steps_per_iteration())),
        iteration_ns_(plan.certificate().iteration_ns()) {}

  MemoryView Run(int columns_max, int tensors_max) {
    view_.arena_bytes = plan_.arena_bytes();
    view_.scratch_bytes = plan_.scratch_bytes();
    view_.iteration_ns = iteration_ns_;
    view_.steps = steps_;
    FindSides();
    FindResidents();
    Sum();
    followed_ = iteration_ns_ > 0 && ActsOfIteration() <= kActsFollowed;
    if (followed_) {
      FollowTokens();
      AddColumns(columns_max);
    }
    AddLargest(tensors_max);
    return std::move(view_);
  }

 private:
  struct Change {
    int64_t amount = 0;
    const std::string* name = nullptr;  // the name of an actor that starts
  };

  void FindSides() {
    const auto registers = static_cast<size_t>(plan_.registers_size());
    writers_.resize(registers);
    readers_.resize(registers);
    writing_actor_.assign(registers, nullptr);
    reading_actors_.resize(registers);
    for (const proto::ActorSpec& actor : plan_.actor()) {
      for (const proto::OutputPort& port : actor.output()) {
        writers_[port.register_id()] = {SideOf(actor, port.span())};
        writing_actor_[port.register_id()] = &actor;
      }
      for (const proto::InputPort& port : actor.input()) {
        readers_[port.register_id()].push_back(SideOf(actor, port.span()));
        reading_actors_[port.register_id()].push_back(&actor);
      }
    }
    for (const proto::RegisterSpec& r : plan_.registers()) {
      if (r.side() != proto::RegisterSpec::INBOUND || r.far_size() == 0) continue;
      writers_[r.id()] = {SideOf(r.far(0), r.far(0).span())};
    }
  }

  void FindResidents() {
    for (const proto::RegisterSpec& r : plan_.registers()) {
      if (r.side() == proto::RegisterSpec::OUTBOUND || r.bytes() == 0) continue;
      Resident resident{&r, nullptr, r.arena_offset(), r.stride() * r.slots()};
      if (r.initial_tokens() == 0 && !writers_[r.id()].empty() && !readers_[r.id()].empty()) {
        resident.writer = &writers_[r.id()].front();
        for (const Side& reader : readers_[r.id()]) resident.readers.push_back(&reader);
        resident.until = readers_[r.id()].back().name;
      }
      residents_.push_back(std::move(resident));
    }
    for (const proto::StateSpec& state : plan_.state()) {
      int64_t bytes = SizeOf(DTypeFromName(state.slice().dtype()).value_or(DType::kF32));
      for (int64_t size : state.slice().shape()) bytes *= size;
      const bool in_register =
          std::any_of(residents_.begin(), residents_.end(), [&](const Resident& r) {
            return r.reg != nullptr && r.reg->initial_tokens() > 0 &&
                   r.offset <= state.arena_offset() && state.arena_offset() < r.offset + r.bytes;
          });
      if (!in_register) residents_.push_back({nullptr, &state, state.arena_offset(), bytes});
    }
  }

  void Sum() {
    std::set<int> delayed;                              // registers of delayed gradients
    std::vector<std::pair<int64_t, int64_t>> landings;  // offsets and ends
    for (const proto::StateSpec& state : plan_.state()) {
      if (state.has_token()) delayed.insert(state.token().register_id());
    }
    for (const Resident& r : residents_) {
      view_.unshared_bytes += r.bytes;
      if (r.state != nullptr || delayed.count(r.reg->id()) > 0) {
        view_.optimiser_bytes += r.bytes;
      } else if (r.reg->initial_tokens() > 0) {
        view_.weight_bytes += r.bytes;
      } else if (r.reg->side() == proto::RegisterSpec::INBOUND) {
        landings.emplace_back(r.offset, r.offset + r.bytes);
      }
    }
    // Landings that are alive at different times share places, each of which counts once.
    std::sort(landings.begin(), landings.end());
    int64_t counted_to = 0;
    for (const auto& [offset, end] : landings) {
      view_.landing_bytes += std::max<int64_t>(0, end - std::max(offset, counted_to));
      counted_to = std::max(counted_to, end);
    }
    view_.unshared_bytes += plan_.scratch_bytes();
    view_.register_bytes =
        std::max<int64_t>(0, plan_.arena_bytes() - view_.scratch_bytes - view_.weight_bytes -
                                 view_.optimiser_bytes - view_.landing_bytes);
  }

  // Returns the start of an act. Acts count from step 0 (proto/plan.proto, ActorSpec.timing).
  int64_t Start(const Side& side, int64_t act) const {
    if (!side.act_start_ns->empty()) {
      const int64_t of_iteration = side.act_start_ns->size();
      return act / of_iteration * iteration_ns_ +
             side.act_start_ns->Get(static_cast<int>(act % of_iteration));
    }
    const int64_t step = side.rate.StepOf(act);
    return step / steps_ * iteration_ns_ + step % steps_ * plan_.certificate().step_ns() +
           side.timing.start_ns + side.timing.OffsetOf(side.rate.ActInStep(act), side.rate.chunks);
  }

  // Adds `amount` from `start` to `end` to the sums over the iteration. The steps of the iteration
  // follow each other.
  void AddSpan(int64_t start, int64_t end, int64_t amount, const std::string* name,
               std::map<int64_t, Change>* changes, int64_t* always) const {
    if (end <= start) return;
    *always += (end - start) / iteration_ns_ * amount;
    const int64_t rest = (end - start) % iteration_ns_;
    const int64_t begin = (start % iteration_ns_ + iteration_ns_) % iteration_ns_;
    if (rest == 0) return;
    Change& first = (*changes)[begin];
    first.amount += amount;
    if (name != nullptr) first.name = name;
    if (begin + rest <= iteration_ns_) {
      (*changes)[begin + rest].amount -= amount;
    } else {
      *always += amount;
      (*changes)[begin + rest - iteration_ns_].amount -= amount;
    }
  }

  int64_t ActsOfIteration() const {
    int64_t acts = 0;
    for (const proto::ActorSpec& actor : plan_.actor())
      acts += actor.rate().acts_per_step() * steps_;
    return acts;
  }

  // Sets the bytes alive at each time, and for each register the number of its tokens alive at
  // once.
  void FollowTokens() {
    always_bytes_ = plan_.scratch_bytes();
    for (Resident& r : residents_) {
      if (r.writer == nullptr) {
        always_bytes_ += r.bytes;
        continue;
      }
      const Side& writer = *r.writer;
      const int64_t acts = writer.rate.ActsIn(steps_);
      const int64_t tokens = std::max<int64_t>(
          1, acts * writer.span.tokens / writer.span.period);  // tokens of an iteration
      std::map<int64_t, Change> own;
      int64_t own_always = 0;
      // Looks at the tokens of an iteration in the steady state, because phases shorten the first
      // spans.
      for (int64_t token = 2 * tokens; token < 3 * tokens; ++token) {
        const int64_t start = Start(writer, writer.FirstAct(token));
        int64_t end = start;
        for (const Side* reader : r.readers) {
          const int64_t ends = Start(*reader, reader->LastAct(token)) + reader->timing.time_ns;
          if (ends > end) {
            end = ends;
            r.until = reader->name;
          }
        }
        r.alive_ns = std::max(r.alive_ns, end - start);
        AddSpan(start, end, r.reg->stride(), &writer.name, &changes_, &always_bytes_);
        AddSpan(start, end, 1, nullptr, &own, &own_always);
      }
      r.held = own_always;
      int64_t sum = own_always;
      for (const auto& [time, change] : own) r.held = std::max(r.held, sum += change.amount);
    }
  }

  void AddColumns(int columns_max) {
    const int columns = static_cast<int>(std::min<int64_t>(columns_max, iteration_ns_));
    if (columns < 1) return;
    view_.columns.resize(static_cast<size_t>(columns));
    const auto column_of = [&](int64_t time) {
      return static_cast<size_t>(static_cast<__int128>(time) * columns / iteration_ns_);
    };
    int64_t alive = always_bytes_;
    view_.most_bytes = alive;
    size_t next = 0;  // the first column without an entry
    for (const auto& [time, change] : changes_) {
      if (time >= iteration_ns_) break;
      const size_t column = column_of(time);
      for (; next < column; ++next) view_.columns[next].bytes = alive;
      const bool at_its_beginning =
          static_cast<__int128>(time) * columns == static_cast<__int128>(column) * iteration_ns_;
      if (next == column && !at_its_beginning) view_.columns[column].bytes = alive;
      next = column + 1;
      alive += change.amount;
      view_.columns[column].bytes = std::max(view_.columns[column].bytes, alive);
      if (alive > view_.most_bytes) {
        view_.most_bytes = alive;
        view_.most_ns = time;
        view_.most_at = change.name == nullptr ? "" : *change.name;
      }
    }
    for (; next < view_.columns.size(); ++next) view_.columns[next].bytes = alive;
    AddPhases();
  }

  // Sets the phase that acts longest in each column.
  void AddPhases() {
    const auto columns = static_cast<int64_t>(view_.columns.size());
    std::vector<std::map<char, int64_t>> busy(view_.columns.size());
    for (const proto::ActorSpec& actor : plan_.actor()) {
      const char letter = PhaseLetter(actor.phase());
      if (letter == '.') continue;
      const Side side = SideOf(actor, proto::Span());
      const int64_t acts = side.rate.ActsIn(steps_);
      for (int64_t act = 0; act < acts; ++act) {
        int64_t from = (Start(side, act) % iteration_ns_ + iteration_ns_) % iteration_ns_;
        for (int64_t left = std::min(actor.timing().time_ns(), iteration_ns_); left > 0;) {
          const auto column =
              static_cast<int64_t>(static_cast<__int128>(from) * columns / iteration_ns_);
          const auto column_end = static_cast<int64_t>(
              (static_cast<__int128>(column + 1) * iteration_ns_ + columns - 1) / columns);
          const int64_t here = std::min(left, std::max<int64_t>(1, column_end - from));
          busy[static_cast<size_t>(column)][letter] += here;
          left -= here;
          from = (from + here) % iteration_ns_;
        }
      }
    }
    for (size_t c = 0; c < busy.size(); ++c) {
      int64_t longest = 0;
      for (const auto& [letter, time] : busy[c]) {
        if (time > longest) {
          longest = time;
          view_.columns[c].phase = letter;
        }
      }
    }
  }

  std::string Why(const Resident& r) const {
    if (r.state != nullptr || r.reg->initial_tokens() > 0) return "kept between steps";
    if (r.writer == nullptr) return "nobody reads it";
    if (r.reg->side() == proto::RegisterSpec::INBOUND)
      return absl::StrCat("comes from rank ", r.reg->peer());
    const proto::ActorSpec& writer = *writing_actor_[r.reg->id()];
    const bool backward =
        std::any_of(reading_actors_[r.reg->id()].begin(), reading_actors_[r.reg->id()].end(),
                    [](const proto::ActorSpec* actor) {
                      return actor->phase() == proto::ActorSpec::BACKWARD ||
                             actor->phase() == proto::ActorSpec::WEIGHT_GRADIENT;
                    });
    const int64_t every = std::max<int64_t>(1, r.reg->every());
    if (r.writer->span.period > r.writer->rate.chunks && plan_.micro_batches() * every > 1) {
      return every > 1 ? absl::StrCat("summed over ", every, " steps") : "summed over the step";
    }
    if (every > 1) return absl::StrCat("once in ", every, " steps");
    if (writer.phase() == proto::ActorSpec::FORWARD && backward) return "for a gradient";
    if (writer.phase() == proto::ActorSpec::BOXING) {
      return r.reg->tokens_per_step() < plan_.micro_batches() ? "boxed for the step" : "boxed";
    }
    if (r.reg->tokens_per_step() < plan_.micro_batches()) return "once a step";
    return "between two actors";
  }

  void AddLargest(int tensors_max) {
    std::vector<const Resident*> order;
    for (const Resident& r : residents_) order.push_back(&r);
    std::stable_sort(order.begin(), order.end(),
                     [](const Resident* a, const Resident* b) { return a->bytes > b->bytes; });
    if (order.size() > static_cast<size_t>(tensors_max))
      order.resize(static_cast<size_t>(tensors_max));
    for (const Resident* r : order) {
      MemoryView::Tensor tensor;
      tensor.name = r->state != nullptr ? r->state->name() : r->reg->name();
      tensor.slots = r->state != nullptr ? 1 : r->reg->slots();
      tensor.held = r->writer == nullptr || !followed_ ? tensor.slots : r->held;
      tensor.bytes = r->bytes;
      if (r->writer != nullptr) {
        tensor.from = r->writer->name;
        tensor.until = r->until;
        tensor.alive_ns = r->alive_ns;
      }
      tensor.why = Why(*r);
      for (const Resident& other : residents_) {
        tensor.sharers += &other != r && other.offset < r->offset + r->bytes &&
                          r->offset < other.offset + other.bytes;
      }
      view_.largest.push_back(std::move(tensor));
    }
  }

  const proto::RankPlan& plan_;
  const int64_t steps_, iteration_ns_;
  std::vector<std::vector<Side>> writers_, readers_;  // by register
  std::vector<const proto::ActorSpec*> writing_actor_;
  std::vector<std::vector<const proto::ActorSpec*>> reading_actors_;
  std::vector<Resident> residents_;
  std::map<int64_t, Change> changes_;
  int64_t always_bytes_ = 0;
  bool followed_ = false;
  MemoryView view_;
};

std::string Bytes(int64_t bytes) { return BytesText(static_cast<double>(bytes)); }

// Characters in a line of the table. A longer text continues on the next line.
constexpr int kColumns = 100;

}  // namespace

MemoryView ViewMemory(const proto::RankPlan& plan, int columns_max, int tensors_max) {
  return Viewer(plan).Run(columns_max, tensors_max);
}

std::string ChartText(const MemoryView& view, int rows) {
  std::string text =
      absl::StrCat("  ", Bytes(view.arena_bytes), " planned, ",
                   Bytes(std::max<int64_t>(0, view.unshared_bytes - view.arena_bytes)),
                   " saved by sharing places");
  if (view.columns.empty()) return text + "\n";
  absl::StrAppend(&text, "; most alive ", Bytes(view.most_bytes), " at ",
                  TimeText(static_cast<double>(view.most_ns)));
  if (!view.most_at.empty()) absl::StrAppend(&text, ", as `", view.most_at, "` starts");
  absl::StrAppend(&text, "\n");
  for (int row = rows; row > 0; --row) {
    const double level = static_cast<double>(view.most_bytes) * row / rows;
    const double below = static_cast<double>(view.most_bytes) * (row - 1) / rows;
    std::string line;
    for (const MemoryView::Column& column : view.columns)
      line.push_back(static_cast<double>(column.bytes) > below ? '#' : ' ');
    while (!line.empty() && line.back() == ' ') line.pop_back();
    absl::StrAppendFormat(&text, "  %10s |%s\n",
                          row == rows || row == rows / 2
                              ? BytesText(level, ByteUnitOf(static_cast<double>(view.most_bytes)))
                              : "",
                          line);
  }
  absl::StrAppendFormat(&text, "  %10s +", "");
  for (const MemoryView::Column& column : view.columns) text.push_back(column.phase);
  absl::StrAppend(&text, " ", TimeText(static_cast<double>(view.iteration_ns)),
                  view.steps > 1 ? absl::StrCat(", ", view.steps, " steps") : "", "\n");
  return text;
}

// A column has one unit. Names are whole, because the last column may continue on the next line.
std::string LargestText(const MemoryView& view) {
  constexpr char kRow[] = "  %10s  %7s  %9s  %6s  %s";
  int64_t alive_ns = 0, bytes = 0;
  for (const MemoryView::Tensor& tensor : view.largest) {
    alive_ns = std::max(alive_ns, tensor.alive_ns);
    bytes = std::max(bytes, tensor.bytes);
  }
  const TimeUnit time_unit = TimeUnitOf(static_cast<double>(alive_ns));
  const ByteUnit byte_unit = ByteUnitOf(static_cast<double>(bytes));
  std::string text =
      absl::StrFormat(kRow, "bytes", "slots", "alive", "shared", "the largest tensors\n");
  for (const MemoryView::Tensor& tensor : view.largest) {
    const std::string slots = tensor.held < tensor.slots
                                  ? absl::StrCat(tensor.held, " of ", tensor.slots)
                                  : absl::StrCat(tensor.slots);
    std::string about = tensor.name;
    if (!tensor.from.empty()) absl::StrAppend(&about, ", from ", tensor.from, " to ", tensor.until);
    const std::string line = absl::StrFormat(
        kRow, BytesText(static_cast<double>(tensor.bytes), byte_unit), slots,
        tensor.alive_ns == 0 ? (tensor.from.empty() ? "always" : "-")
                             : TimeText(static_cast<double>(tensor.alive_ns), time_unit),
        tensor.sharers == 0 ? "" : absl::StrCat(tensor.sharers),
        absl::StrCat(about, ": ", tensor.why));
    absl::StrAppend(&text, WrapText(line, kColumns, /*hanging=*/38), "\n");
  }
  return text;
}

}  // namespace weir::compiler
