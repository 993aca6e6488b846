#include "tools/train/generation_cache.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ops/defs/at_positions.h"
#include "sbp/layout.h"

namespace weir::train {
namespace {

// Adds the rows at which the shards of what `node` keeps end.
void AddEnds(const compiler::Function& function, const compiler::Node& node, const sbp::Mesh& mesh,
             std::set<int64_t>* ends) {
  const compiler::Value& pool = function.values[node.outputs[1]];
  const int64_t pages = node.attrs.Int("pages");
  for (int64_t device = 0; device < mesh.num_ranks(); ++device) {
    const TensorSlice slice = sbp::LocalSlice(pool.type, pool.layout, mesh, mesh.CoordsOf(device));
    if (slice.shape[0] > 0) ends->insert((slice.offset[0] + slice.shape[0]) / pages);
  }
}

}  // namespace

std::vector<int64_t> CacheRowEnds(const compiler::LogicalPlan& plan) {
  std::set<int64_t> ends;
  for (const compiler::Function& function : plan.module.functions) {
    for (const compiler::Node& node : function.nodes) {
      if (ops::KeepsOutputs(node.op))
        AddEnds(function, node, plan.places.mesh(function.stage_of_mesh()), &ends);
    }
  }
  return {ends.begin(), ends.end()};
}

GenerationCache::GenerationCache(const std::vector<int64_t>& row_ends, int64_t pages_per_row) {
  int64_t begin = 0;
  for (const int64_t end : row_ends) {
    Part& part = parts_.emplace_back();
    part_of_row_.resize(static_cast<size_t>(end), parts_.size() - 1);
    // The last ones of these lists are taken first.
    for (int64_t row = end; row-- > begin;) part.free_rows.push_back(row);
    for (int64_t page = end * pages_per_row; page-- > std::max<int64_t>(1, begin * pages_per_row);)
      part.free_pages.push_back(static_cast<int32_t>(page));
    part.capacity = static_cast<int64_t>(part.free_pages.size());
    num_pages_ += part.capacity;
    begin = end;
  }
}

int64_t GenerationCache::capacity() const {
  int64_t capacity = 0;
  for (const Part& part : parts_) capacity = std::max(capacity, part.capacity);
  return capacity;
}

void GenerationCache::Take(Part* part, std::vector<int32_t>* pages) {
  pages->push_back(part->free_pages.back());
  part->free_pages.pop_back();
  peak_pages_ = std::max(peak_pages_, ++pages_in_use_);
}

bool GenerationCache::Admit(size_t sequence, int64_t pages, int64_t pages_max) {
  Part* best = nullptr;
  for (Part& part : parts_) {
    const auto free = static_cast<int64_t>(part.free_pages.size());
    if (part.free_rows.empty() || free < pages || part.capacity < pages_max) continue;
    if (best == nullptr || part.capacity - part.promised > best->capacity - best->promised)
      best = &part;
  }
  if (best == nullptr) return false;
  Place place;
  place.row = best->free_rows.back();
  best->free_rows.pop_back();
  place.pages_max = pages_max;
  best->promised += pages_max;
  for (int64_t i = 0; i < pages; ++i) Take(best, &place.pages);
  places_.emplace(sequence, std::move(place));
  return true;
}

bool GenerationCache::Grow(size_t sequence) {
  Part& part = PartOf(sequence);
  if (part.free_pages.empty()) return false;
  Take(&part, &places_.at(sequence).pages);
  return true;
}

size_t GenerationCache::YoungestBeside(size_t sequence) const {
  const size_t part = part_of_row_[places_.at(sequence).row];
  size_t youngest = sequence;
  for (const auto& [other, place] : places_) {
    if (part_of_row_[place.row] == part) youngest = std::max(youngest, other);
  }
  return youngest;
}

void GenerationCache::Release(size_t sequence) {
  Part& part = PartOf(sequence);
  const Place& place = places_.at(sequence);
  part.free_rows.push_back(place.row);
  part.promised -= place.pages_max;
  part.free_pages.insert(part.free_pages.end(), place.pages.rbegin(), place.pages.rend());
  pages_in_use_ -= static_cast<int64_t>(place.pages.size());
  places_.erase(sequence);
}

}  // namespace weir::train
