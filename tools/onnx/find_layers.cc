#include "tools/onnx/find_layers.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir::onnx {
namespace {

constexpr int kNodesOfLayerMin = 3;
constexpr int kCandidatesMax = 200;         // stretches that are looked at closely
constexpr int64_t kVisitsMax = 20'000'000;  // of operands, in all stretches

// A run of nodes that each do what the node `period` later does.
struct Run {
  int begin = 0, length = 0, period = 0;
  int rounds() const { return length / period + 1; }
};

class LayerFinder {
 public:
  LayerFinder(const WeirGraph& graph, const std::vector<ValueId>& outputs)
      : graph_(graph), outputs_(outputs.begin(), outputs.end()) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (ValueId input : graph.nodes[n].inputs) readers_[input].push_back(static_cast<int>(n));
    }
  }

  std::optional<Layers> Find() {
    std::vector<Run> runs = Runs();
    std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
      return a.rounds() * a.period > b.rounds() * b.period;
    });
    if (runs.size() > kCandidatesMax) runs.resize(kCandidatesMax);
    std::optional<Layers> best;
    for (const Run& run : runs) {
      if (best.has_value() && run.rounds() * run.period <= best->rounds * best->period) break;
      // A layer may begin at any node of the first round.
      for (int shift = 0; shift < run.period; ++shift) {
        const int rounds = (run.length - shift) / run.period + 1;
        if (rounds < 2 || run.length < shift) break;
        if (best.has_value() && rounds * run.period <= best->rounds * best->period) break;
        std::optional<Layers> layers = LayersAt(run.begin + shift, run.period, rounds);
        if (layers.has_value()) best = std::move(layers);
      }
    }
    return best;
  }

 private:
  // Returns what nodes of one layer have in common with those of another.
  std::string TextOf(const GraphNode& node) const {
    std::string text = absl::StrCat(node.op, ToText(node.attrs), ":");
    for (ValueId input : node.inputs) {
      const GraphValue& value = graph_.values[input];
      absl::StrAppend(&text, " ", value.parameter >= 0 ? "w" : "",
                      absl::StrJoin(graph_.shape(input), ","));
    }
    return text;
  }

  std::vector<Run> Runs() const {
    std::map<std::string, int> texts;
    std::vector<int> kinds;
    for (const GraphNode& node : graph_.nodes)
      kinds.push_back(texts.emplace(TextOf(node), static_cast<int>(texts.size())).first->second);
    std::vector<Run> runs;
    const auto count = static_cast<int>(kinds.size());
    for (int period = kNodesOfLayerMin; 2 * period <= count; ++period) {
      int length = 0;
      for (int i = 0; i + period <= count; ++i) {
        const bool same = i + period < count && kinds[i] == kinds[i + period];
        if (same) ++length;
        if (!same && length >= period) runs.push_back({i - length, length, period});
        if (!same) length = 0;
      }
    }
    return runs;
  }

  // Where a node reads an operand from, seen from its round.
  struct Source {
    enum class Kind : uint8_t { kInside, kCarried, kShared, kParameter } kind = Kind::kShared;
    int node = 0, result = 0;  // kInside: of the round
    ValueId value = -1;        // kShared
    int parameter = -1;        // kParameter: the place among the parameters of the round
    friend bool operator==(const Source&, const Source&) = default;
  };

  std::optional<Layers> LayersAt(int first, int period, int rounds) {
    Layers layers;
    layers.first = first;
    layers.period = period;
    layers.rounds = rounds;
    const auto round_of = [&](int node) {
      return node < first || node >= first + period * rounds ? -1 : (node - first) / period;
    };
    std::vector<Source> wanted;
    for (int r = 0; r < rounds; ++r) {
      const int begin = first + r * period;
      std::vector<Source> sources;
      std::vector<int> parameters;
      ValueId carried = -1;
      for (int n = begin; n < begin + period; ++n) {
        for (ValueId input : graph_.nodes[n].inputs) {
          if (++visits_ > kVisitsMax) return std::nullopt;
          const GraphValue& value = graph_.values[input];
          Source source;
          if (value.node >= begin) {
            const std::vector<ValueId>& outputs = graph_.nodes[value.node].outputs;
            source = {Source::Kind::kInside, value.node - begin,
                      static_cast<int>(std::find(outputs.begin(), outputs.end(), input) -
                                       outputs.begin())};
          } else if (value.parameter >= 0 && ReadersAreIn(input, begin, begin + period)) {
            const auto known = std::find(parameters.begin(), parameters.end(), value.parameter);
            source.kind = Source::Kind::kParameter;
            source.parameter = static_cast<int>(known - parameters.begin());
            if (known == parameters.end()) parameters.push_back(value.parameter);
          } else if (value.node >= 0 && IsHandedOn(input, r, round_of, first)) {
            if (carried >= 0 && carried != input) return std::nullopt;
            carried = input;
            source.kind = Source::Kind::kCarried;
          } else if (round_of(value.node) >= 0 && value.node >= 0) {
            return std::nullopt;  // from an earlier round
          } else {
            source.value = input;
            if (r == 0 &&
                std::find(layers.shared.begin(), layers.shared.end(), input) == layers.shared.end())
              layers.shared.push_back(input);
          }
          sources.push_back(source);
        }
      }
      if (carried < 0) return std::nullopt;
      if (r == 0) {
        wanted = sources;
        layers.carried = carried;
      } else if (sources != wanted || !AreAlike(layers.parameters[0], parameters)) {
        return std::nullopt;
      } else {
        layers.results.push_back(carried);
      }
      layers.parameters.push_back(std::move(parameters));
    }
    return WithResults(std::move(layers));
  }

  bool ReadersAreIn(ValueId value, int begin, int end) const {
    const std::vector<int>& readers = readers_.at(value);
    return std::all_of(readers.begin(), readers.end(),
                       [&](int reader) { return reader >= begin && reader < end; });
  }

  // The first round carries what no later round reads, and another round what the one before
  // computes.
  template <typename RoundOf>
  bool IsHandedOn(ValueId value, int round, const RoundOf& round_of, int first) const {
    const int node = graph_.values[value].node;
    if (round > 0) return round_of(node) == round - 1;
    if (node >= first) return false;
    const std::vector<int>& readers = readers_.at(value);
    return std::none_of(readers.begin(), readers.end(),
                        [&](int reader) { return round_of(reader) > 0; });
  }

  bool AreAlike(const std::vector<int>& a, const std::vector<int>& b) const {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      const GraphParameter &one = graph_.parameters[a[i]], &other = graph_.parameters[b[i]];
      if (one.trained != other.trained || graph_.shape(one.value) != graph_.shape(other.value))
        return false;
    }
    return true;
  }

  // Adds what the last round hands on: the result at the place of those of the rounds before. No
  // other result of a round may be read outside the round.
  std::optional<Layers> WithResults(Layers layers) const {
    const int node = graph_.values[layers.results[0]].node;
    const int place = (node - layers.first) % layers.period;
    const std::vector<ValueId>& outputs = graph_.nodes[node].outputs;
    const auto at = std::find(outputs.begin(), outputs.end(), layers.results[0]) - outputs.begin();
    const std::vector<ValueId> read = std::move(layers.results);
    layers.results.clear();
    for (int r = 0; r < layers.rounds; ++r) {
      const int begin = layers.first + r * layers.period, end = begin + layers.period;
      layers.results.push_back(graph_.nodes[begin + place].outputs[at]);
      if (r + 1 < layers.rounds && read[r] != layers.results[r]) return std::nullopt;
      for (int n = begin; n < end; ++n) {
        for (ValueId output : graph_.nodes[n].outputs) {
          if (output == layers.results[r]) continue;
          const auto readers = readers_.find(output);
          if (outputs_.count(output) > 0 ||
              (readers != readers_.end() && !ReadersAreIn(output, begin, end)))
            return std::nullopt;
        }
      }
    }
    // A round must read what the one before hands on, and its own result must have the same type.
    if (graph_.shape(layers.carried) != graph_.shape(layers.results[0])) return std::nullopt;
    return layers;
  }

  const WeirGraph& graph_;
  const std::set<ValueId> outputs_;
  std::map<ValueId, std::vector<int>> readers_;
  int64_t visits_ = 0;
};

}  // namespace

std::optional<Layers> FindLayers(const WeirGraph& graph, const std::vector<ValueId>& outputs) {
  if (graph.nodes.size() > kLayerNodesMax) return std::nullopt;
  return LayerFinder(graph, outputs).Find();
}

}  // namespace weir::onnx
