#include "tools/fleet/guarded_states.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/unit_text.h"

namespace weir::fleet {
namespace {

bool SameShards(const Charge& a, const Charge& b) {
  const auto same = [](const GuardedShard& x, const GuardedShard& y) {
    return x.rank == y.rank && x.name == y.name && x.bytes == y.bytes;
  };
  return std::equal(a.shards.begin(), a.shards.end(), b.shards.begin(), b.shards.end(), same);
}

}  // namespace

int64_t Charge::bytes() const {
  int64_t sum = 0;
  for (const GuardedShard& shard : shards) sum += shard.bytes;
  return sum;
}

const GuardedStates::Copy* GuardedStates::Kept::Last() const {
  const Copy* last = nullptr;
  for (const Copy& copy : copies) {
    if (IsWhole(copy) && (last == nullptr || copy.step > last->step)) last = &copy;
  }
  return last;
}

absl::Status GuardedStates::Expect(const std::vector<Charge>& charges) {
  MutexLock lock(&mutex_);
  std::map<WorkerId, Kept> kept;
  for (const Charge& charge : charges) {
    Kept& one = kept[charge.worker];
    const auto before = kept_.find(charge.worker);
    if (before != kept_.end() && SameShards(before->second.charge, charge)) {
      one = std::move(before->second);
      one.receiving = -1;
      continue;
    }
    one.charge = charge;
    one.bytes = charge.bytes();
    for (Copy& copy : one.copies) {
      copy.memory =
          std::unique_ptr<char[]>(new (std::nothrow) char[static_cast<size_t>(one.bytes)]);
      if (copy.memory != nullptr) continue;
      kept_.clear();
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for copies of the states of another process, ",
                       BytesText(static_cast<double>(one.bytes)), " each"));
    }
  }
  kept_ = std::move(kept);
  return absl::OkStatus();
}

void GuardedStates::ForgetAllBut(int64_t step) {
  MutexLock lock(&mutex_);
  for (auto& [worker, kept] : kept_) {
    for (Copy& copy : kept.copies) {
      if (copy.step != step || !kept.IsWhole(copy)) copy.step = -1;
    }
    kept.receiving = -1;
  }
}

absl::Status GuardedStates::Add(WorkerId charge, int64_t step, absl::string_view bytes) {
  MutexLock lock(&mutex_);
  const auto found = kept_.find(charge);
  if (found == kept_.end())
    return absl::InternalError(absl::StrCat("worker ", charge, " is no charge of this worker"));
  Kept& kept = found->second;
  if (kept.receiving < 0 || kept.copies[static_cast<size_t>(kept.receiving)].step != step) {
    const Copy* const last = kept.Last();
    kept.receiving = last == &kept.copies[0] ? 1 : 0;
    Copy& begun = kept.copies[static_cast<size_t>(kept.receiving)];
    begun.step = step;
    begun.filled = 0;
  }
  Copy& copy = kept.copies[static_cast<size_t>(kept.receiving)];
  const int64_t size = static_cast<int64_t>(bytes.size());
  if (size > kept.bytes - copy.filled) {
    return absl::InternalError(absl::StrCat("worker ", charge, " sends more than the ", kept.bytes,
                                            " bytes of its states"));
  }
  std::memcpy(copy.memory.get() + copy.filled, bytes.data(), bytes.size());
  copy.filled += size;
  return absl::OkStatus();
}

std::vector<WholeCopy> GuardedStates::Whole() const {
  MutexLock lock(&mutex_);
  std::vector<WholeCopy> whole;
  for (const auto& [worker, kept] : kept_) {
    for (const Copy& copy : kept.copies) {
      if (kept.IsWhole(copy)) whole.push_back({worker, copy.step});
    }
  }
  return whole;
}

absl::StatusOr<absl::string_view> GuardedStates::Read(RankId rank, const std::string& name,
                                                      int64_t begin, int64_t bytes) const {
  MutexLock lock(&mutex_);
  for (const auto& [worker, kept] : kept_) {
    const Copy* const last = kept.Last();
    int64_t at = 0;
    for (const GuardedShard& shard : kept.charge.shards) {
      if (shard.rank == rank && shard.name == name) {
        if (last == nullptr || begin < 0 || bytes < 0 || begin > shard.bytes - bytes) break;
        return absl::string_view(last->memory.get() + at + begin, static_cast<size_t>(bytes));
      }
      at += shard.bytes;
    }
  }
  return absl::NotFoundError(
      absl::StrCat("no copy of the state ", name, " of rank ", rank, " is here"));
}

int64_t GuardedStates::bytes() const {
  MutexLock lock(&mutex_);
  int64_t sum = 0;
  for (const auto& [worker, kept] : kept_)
    sum += kept.bytes * static_cast<int64_t>(kept.copies.size());
  return sum;
}

}  // namespace weir::fleet
