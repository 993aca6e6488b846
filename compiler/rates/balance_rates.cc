#include "compiler/rates/balance_rates.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/rates/waits.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

constexpr size_t kPathShown = 10;

// A positive fraction in lowest terms, whose parts fit into 64 bits.
struct Ratio {
  int64_t num = 1;
  int64_t den = 1;
  bool operator==(const Ratio&) const = default;
};

std::string Text(const Ratio& ratio) {
  return ratio.den == 1 ? absl::StrCat(ratio.num) : absl::StrCat(ratio.num, "/", ratio.den);
}

std::optional<int64_t> Product(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// Returns a * b. The factors are cancelled first, so the product overflows only if the result does.
std::optional<Ratio> Product(const Ratio& a, const Ratio& b) {
  const int64_t left = std::gcd(a.num, b.den), right = std::gcd(b.num, a.den);
  const auto num = Product(a.num / left, b.num / right);
  const auto den = Product(a.den / right, b.den / left);
  if (!num || !den) return std::nullopt;
  return Ratio{*num, *den};
}

std::optional<int64_t> LeastCommonMultiple(int64_t a, int64_t b) {
  return Product(a / std::gcd(a, b), b);
}

// The equation acts(to) = acts(from) * ratio, from a register or an order.
struct Equation {
  ActorId to;
  Ratio ratio;
  const std::string* name = nullptr;
};

class Balance {
 public:
  explicit Balance(TimedGraph* graph)
      : graph_(*graph), equations_(graph->actors.size()), visits_(graph->actors.size()) {}

  absl::Status Run() {
    WEIR_RETURN_IF_ERROR(Collect());
    for (ActorId a : graph_.actors.ids()) {
      if (visits_[a].made) continue;
      WEIR_RETURN_IF_ERROR(Spread(a));
      WEIR_RETURN_IF_ERROR(Scale());
    }
    return absl::OkStatus();
  }

 private:
  // The search's visit to an actor.
  struct Visit {
    Ratio ratio;   // of the actor's acts to those of the first actor of its connected part
    ActorId from;  // the actor that the search came from
    const std::string* by = nullptr;  // the register or order that joins the two
    bool made = false;
  };

  std::string Name(ActorId actor) const {
    return absl::StrCat("`", graph_.actors[actor].name, "`");
  }

  absl::Status TooLarge(ActorId actor) const {
    return Rejected({"W0493", absl::StrCat("actor ", Name(actor)),
                     "a number of acts below 2^31 in one iteration",
                     "rates whose smallest whole multiple is larger",
                     "rates that have more factors in common"});
  }

  absl::Status Collect() {
    for (const TimedGraph::Actor& actor : graph_.actors) {
      if (actor.acts < 0 || actor.chunks < 1)
        return absl::InternalError(absl::StrCat("timed graph: ", actor.name, " acts ", actor.acts,
                                                " times in ", actor.chunks, " chunks"));
    }
    for (const TimedGraph::Register& reg : graph_.registers) {
      for (const TimedGraph::Port& consumer : reg.consumers) {
        for (const TimedGraph::Port* port : {&reg.producer, &consumer}) {
          if (!graph_.actors.Has(port->actor) || port->period < 1 || port->tokens < 1) {
            return absl::InternalError(absl::StrCat("timed graph: a port of ", reg.name,
                                                    " of actor ", port->actor, ", ", port->tokens,
                                                    " tokens in ", port->period, " acts"));
          }
        }
        // acts(c) = acts(p) * (tokens_p / period_p) * (period_c / tokens_c)
        const auto made = Reduced(reg.producer.tokens, reg.producer.period),
                   taken = Reduced(consumer.period, consumer.tokens);
        const std::optional<Ratio> ratio = Product(made, taken);
        if (!ratio) return TooLarge(consumer.actor);
        Connect(reg.producer.actor, consumer.actor, *ratio, &reg.name);
      }
    }
    for (const TimedGraph::Order& order : graph_.orders) {
      if (!graph_.actors.Has(order.before) || !graph_.actors.Has(order.after)) {
        return absl::InternalError(absl::StrCat("timed graph: order ", order.why, " of ",
                                                order.before, " and ", order.after));
      }
      Connect(order.before, order.after, {1, 1}, &order.why);
    }
    return absl::OkStatus();
  }

  static Ratio Reduced(int64_t num, int64_t den) {
    const int64_t divisor = std::gcd(num, den);
    return {num / divisor, den / divisor};
  }

  void Connect(ActorId from, ActorId to, const Ratio& ratio, const std::string* name) {
    equations_[from].push_back({to, ratio, name});
    equations_[to].push_back({from, {ratio.den, ratio.num}, name});
  }

  // Finds the rates of all actors that are connected with `first`. The search is breadth first, so
  // the paths in an error are the shortest.
  absl::Status Spread(ActorId first) {
    part_ = {first};
    visits_[first].made = true;
    for (size_t i = 0; i < part_.size(); ++i) {
      const ActorId from = part_[i];
      for (const Equation& equation : equations_[from]) {
        const std::optional<Ratio> ratio = Product(visits_[from].ratio, equation.ratio);
        if (!ratio) return TooLarge(equation.to);
        Visit& visit = visits_[equation.to];
        if (!visit.made) {
          visit = {*ratio, from, equation.name, true};
          part_.push_back(equation.to);
        } else if (visit.ratio != *ratio) {
          return Contradiction(from, equation, *ratio);
        }
      }
    }
    return absl::OkStatus();
  }

  std::vector<ActorId> PathFromFirst(ActorId actor) const {
    std::vector<ActorId> path;
    for (; actor.has_value(); actor = visits_[actor].from) path.push_back(actor);
    std::reverse(path.begin(), path.end());
    return path;
  }

  // Returns "`a` -x-> `b` -y-> `c`".
  std::string Text(const std::vector<ActorId>& path, size_t begin, const Equation* last) const {
    std::vector<std::string> parts;
    for (size_t i = begin; i < path.size(); ++i) {
      if (path.size() - begin > kPathShown && i - begin >= kPathShown / 2 &&
          path.size() - i > kPathShown / 2) {
        if (i - begin == kPathShown / 2) parts.push_back("...");
        continue;
      }
      parts.push_back(i == begin ? Name(path[i])
                                 : absl::StrCat("(", *visits_[path[i]].by, ") ", Name(path[i])));
    }
    if (last != nullptr) parts.push_back(absl::StrCat("(", *last->name, ") ", Name(last->to)));
    return absl::StrJoin(parts, " ");
  }

  absl::Status Contradiction(ActorId from, const Equation& equation, const Ratio& ratio) const {
    const std::vector<ActorId> one = PathFromFirst(equation.to), other = PathFromFirst(from);
    size_t fork = 0;
    while (fork + 1 < std::min(one.size(), other.size()) && one[fork + 1] == other[fork + 1])
      ++fork;
    const Ratio& start = visits_[one[fork]].ratio;
    const auto asked_one =
        weir::compiler::Product(visits_[equation.to].ratio, {start.den, start.num});
    const auto asked_other = weir::compiler::Product(ratio, {start.den, start.num});
    const auto text = [](const std::optional<Ratio>& asked) {
      return asked ? weir::compiler::Text(*asked) : std::string("very many");
    };
    return Rejected(
        {"W0493", absl::StrCat("actor ", Name(equation.to)),
         absl::StrCat("the same rate on every path, per act of ", Name(one[fork])),
         absl::StrCat(text(asked_one),
                      one.size() == fork + 1
                          ? " (itself)"
                          : absl::StrCat(" by way of ", Text(one, fork, nullptr)),
                      ", but ", text(asked_other), " by way of ", Text(other, fork, &equation)),
         absl::StrCat(
             "make the periods and tokens along the two paths multiply to the same rate")});
  }

  absl::Status Scale() {
    // The smallest ratio that gives every actor whole spans and whole micro-batches.
    int64_t num = 1, den = 0;
    for (ActorId actor : part_) {
      const std::optional<Ratio> units =
          weir::compiler::Product(visits_[actor].ratio, {1, Divisor(actor)});
      const auto multiple =
          units && Divisor(actor) > 0 ? LeastCommonMultiple(num, units->den) : std::nullopt;
      if (!multiple) return TooLarge(actor);
      num = *multiple;
      den = std::gcd(den, units->num);
    }
    Ratio scale = Reduced(num, den);
    const auto given = std::find_if(part_.begin(), part_.end(),
                                    [&](ActorId actor) { return graph_.actors[actor].acts > 0; });
    if (given != part_.end()) {
      const Ratio& ratio = visits_[*given].ratio;
      const auto asked =
          weir::compiler::Product({graph_.actors[*given].acts, 1}, {ratio.den, ratio.num});
      if (!asked) return TooLarge(*given);
      scale = *asked;
    }
    for (ActorId actor : part_) {
      const auto acts = weir::compiler::Product(visits_[actor].ratio, scale);
      if (!acts || acts->num >= kCountMax) return TooLarge(actor);
      TimedGraph::Actor& a = graph_.actors[actor];
      if (acts->den != 1 || acts->num % Divisor(actor) != 0) {
        return Rejected({"W0493", absl::StrCat("actor ", Name(actor)),
                         absl::StrCat("a multiple of ", Divisor(actor),
                                      " acts, which its ports and chunks are made for"),
                         absl::StrCat(weir::compiler::Text(*acts), ", as ", Name(*given), " acts ",
                                      graph_.actors[*given].acts, " times, by way of ",
                                      PathBetween(*given, actor)),
                         absl::StrCat("let ", Name(*given), " act a multiple of ",
                                      SmallestActs(*given, num, den), " times")});
      }
      if (a.acts > 0 && a.acts != acts->num) {
        return Rejected({"W0493", absl::StrCat("actor ", Name(actor)),
                         absl::StrCat(acts->num, " acts, as ", Name(*given), " acts ",
                                      graph_.actors[*given].acts, " times, by way of ",
                                      PathBetween(*given, actor)),
                         absl::StrCat(a.acts), "change one of the two, or a period between them"});
      }
      a.acts = acts->num;
    }
    return absl::OkStatus();
  }

  // Returns the number that must divide the acts of an actor: a multiple of the periods of all its
  // ports and of its chunks. 0 if that number does not fit.
  int64_t Divisor(ActorId actor) {
    if (divisors_.empty()) {
      for (const TimedGraph::Actor& a : graph_.actors) divisors_.push_back(a.chunks);
      const auto include = [&](const TimedGraph::Port& port) {
        int64_t& divisor = divisors_[port.actor];
        if (divisor > 0) divisor = LeastCommonMultiple(divisor, port.period).value_or(0);
      };
      for (const TimedGraph::Register& reg : graph_.registers) {
        include(reg.producer);
        for (const TimedGraph::Port& port : reg.consumers) include(port);
      }
    }
    return divisors_[actor];
  }

  int64_t SmallestActs(ActorId actor, int64_t num, int64_t den) const {
    const auto acts = weir::compiler::Product(visits_[actor].ratio, Reduced(num, den));
    return acts ? acts->num : 0;
  }

  std::string PathBetween(ActorId from, ActorId to) const {
    const std::vector<ActorId> one = PathFromFirst(from), other = PathFromFirst(to);
    size_t fork = 0;
    while (fork + 1 < std::min(one.size(), other.size()) && one[fork + 1] == other[fork + 1])
      ++fork;
    std::vector<std::string> parts;
    for (size_t i = one.size() - 1; i > fork; --i)
      parts.push_back(absl::StrCat(Name(one[i]), " (", *visits_[one[i]].by, ")"));
    parts.push_back(Text(other, fork, nullptr));
    return absl::StrJoin(parts, " ");
  }

  TimedGraph& graph_;
  IdVector<ActorId, std::vector<Equation>> equations_;
  IdVector<ActorId, Visit> visits_;
  std::vector<ActorId> part_;  // the connected part in progress
  IdVector<ActorId, int64_t> divisors_;
};

}  // namespace

absl::Status BalanceRates(TimedGraph* graph) { return Balance(graph).Run(); }

}  // namespace weir::compiler
