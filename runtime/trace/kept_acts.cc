#include "runtime/trace/kept_acts.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <bit>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/trace.pb.h"
#include "runtime/base/checksum.h"
#include "runtime/base/status.h"
#include "runtime/base/tick_clock.h"
#include "runtime/trace/plan_facts.h"

namespace weir::trace {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kPageBytes = 4096;
constexpr uint32_t kMagic = 0x77616b31;
constexpr int64_t kStepMax = int64_t{1} << 53;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Facts and rings follow, each at a multiple of kAlignment.
struct RegionHead {
  uint32_t facts_crc = 0;
  int64_t facts_bytes = 0;
  int64_t rings_bytes = 0;
};
int64_t RingsAt(const RegionHead& head) {
  return RoundUp(kAlignment + head.facts_bytes, kAlignment);
}

// Region is a mapped part of the file. Its end gives the memory back to the system.
class Region {
 public:
  Region(int descriptor, int64_t at, int64_t bytes, char* memory)
      : descriptor_(descriptor), at_(at), bytes_(bytes), memory_(memory) {}
  ~Region() {
    ::munmap(memory_, static_cast<size_t>(bytes_));
    ::fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at_, bytes_);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  char* memory() const { return memory_; }

 private:
  const int descriptor_;
  const int64_t at_, bytes_;
  char* const memory_;
};

// Takes memory for a part of the file, and returns whether the system has given it. A file beyond
// the limit of the shell would be the end of the process.
bool Reserve(int descriptor, int64_t at, int64_t bytes) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<rlim_t>(at + bytes) > limit.rlim_cur) {
    errno = EFBIG;
    return false;
  }
  return ::fallocate(descriptor, 0, at, bytes) == 0;
}

absl::StatusOr<std::shared_ptr<Region>> MapRegion(int descriptor, int64_t at, int64_t bytes) {
  // Memory that the system does not have is refused here. A page that is missing later would kill
  // the process.
  void* memory = MAP_FAILED;
  if (Reserve(descriptor, at, bytes))
    memory = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_POPULATE, descriptor, at);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory of ", bytes, " bytes for the records of acts: ", ::strerror(errno)));
  }
  return std::make_shared<Region>(descriptor, at, bytes, static_cast<char*>(memory));
}

// Describes the ranks and places their rings. Returns the bytes of all rings.
int64_t Describe(const TracedJob& job, const std::vector<ActRing*>& rings, proto::KeptJob* to) {
  to->set_plan_id(job.plan_id);
  to->set_num_ranks(job.num_ranks);
  to->set_num_stages(job.num_stages);
  to->set_micro_batches(job.micro_batches);
  to->set_schedule(job.schedule);
  to->set_predicted_bubble(job.predicted_bubble);
  to->set_first_step(job.first_step);
  to->set_virtual_stages(job.virtual_stages);
  to->set_stages_in_a_row(job.stages_in_a_row);
  int64_t end = 0;
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    const TracedRank& rank = job.ranks[i];
    proto::KeptRank* kept = to->add_rank();
    FactsWriter facts(kept->mutable_facts());
    facts.Write(rank);
    kept->set_device(rank.device);
    for (const TracedRegister& r : rank.registers) {
      kept->add_token_holder_text(facts.Text(r.token_holder));
      kept->add_slot_holder_text(facts.Text(r.slot_holder));
    }
    kept->set_ring_at(end);
    kept->set_ring_capacity(rings[i]->capacity());
    end = RoundUp(end + static_cast<int64_t>(rings[i]->bytes()), kAlignment);
  }
  return end;
}

// Returns whether a record names things that the rank has.
bool IsPossible(const ActRecord& act, const TracedRank& rank) {
  if (act.end < act.start) return false;
  if (!act.actor.has_value()) return true;
  if (!rank.actors.Has(act.actor) || act.step < 0 || act.step >= kStepMax) return false;
  const TracedActor& actor = rank.actors[act.actor];
  if (act.micro_batch < 0 || act.chunk < 0 || act.chunk >= actor.chunks ||
      act.micro_batch >= actor.acts_per_step || act.wait > ActRecord::Wait::kGroup) {
    return false;
  }
  return !act.waited_register.has_value() || rank.registers.Has(act.waited_register);
}

// Copies the whole records of a ring in foreign memory, oldest first.
ActRing CopyRing(absl::string_view bytes, int64_t capacity, const TracedRank& rank) {
  ActRing copy(capacity);
  uint64_t num_added = 0;
  ::memcpy(&num_added, bytes.data(), sizeof(num_added));
  const uint64_t size = static_cast<uint64_t>(capacity);
  // The room of the next record was that of the oldest one.
  const uint64_t first = num_added < size ? 0 : num_added - size + 1;
  for (uint64_t i = first; i < num_added; ++i) {
    ActRecord record;
    ::memcpy(static_cast<void*>(&record),
             bytes.data() + sizeof(ActRing::Head) + (i & (size - 1)) * sizeof(ActRecord),
             sizeof(record));
    if (IsPossible(record, rank)) copy.Add() = record;
  }
  return copy;
}

}  // namespace

// The head of the file. Two moments are enough for the length of a tick, and are far apart once
// steps run; of the last one there are two, so that one is whole at any time.
struct KeptHead {
  uint32_t magic = kMagic;
  uint32_t record_bytes = sizeof(ActRecord);
  int64_t region_at = 0;  // 0: none
  TickMoment first;
  TickMoment last[2];
  uint32_t last_whole = 0;  // which of the two
};
static_assert(sizeof(KeptHead) <= kPageBytes);

std::unique_ptr<KeptActs> KeptActs::Open(int descriptor) {
  if (!Reserve(descriptor, 0, kPageBytes)) return nullptr;
  void* memory =
      ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, /*offset=*/0);
  if (memory == MAP_FAILED) return nullptr;
  return std::unique_ptr<KeptActs>(new KeptActs(descriptor, new (memory) KeptHead()));
}

KeptActs::KeptActs(int descriptor, KeptHead* head)
    : descriptor_(descriptor), head_(head), end_(kPageBytes) {
  head_->first = head_->last[0] = TickMoment::Now();
}

KeptActs::~KeptActs() { ::munmap(head_, kPageBytes); }

void KeptActs::NoteTime() {
  MutexLock lock(&mutex_);
  const uint32_t next = 1 - head_->last_whole;
  head_->last[next] = TickMoment::Now();
  std::atomic_ref<uint32_t>(head_->last_whole).store(next, std::memory_order_release);
}

absl::Status KeptActs::Keep(const TracedJob& job, const std::vector<ActRing*>& rings) {
  proto::KeptJob kept;
  RegionHead head;
  head.rings_bytes = Describe(job, rings, &kept);
  const std::string facts = kept.SerializeAsString();
  head.facts_bytes = static_cast<int64_t>(facts.size());
  head.facts_crc = Crc32c(facts.data(), facts.size());
  const int64_t bytes = RoundUp(RingsAt(head) + head.rings_bytes, kPageBytes);
  if (last_region_.expired()) end_ = kPageBytes;
  if (end_ + bytes > kKeptBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("the records of acts need ", end_ + bytes,
                                                     " bytes, more than ", kKeptBytesMax));
  }
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<Region> region, MapRegion(descriptor_, end_, bytes));
  ::memcpy(region->memory(), &head, sizeof(head));
  ::memcpy(region->memory() + kAlignment, facts.data(), facts.size());
  for (size_t i = 0; i < rings.size(); ++i) {
    char* const at = region->memory() + RingsAt(head) + kept.rank(static_cast<int>(i)).ring_at();
    rings[i]->MoveTo(std::shared_ptr<char>(region, at));
  }
  // From here on the region counts.
  std::atomic_ref<int64_t>(head_->region_at).store(end_, std::memory_order_release);
  last_region_ = region;
  end_ += bytes;
  NoteTime();
  return absl::OkStatus();
}

namespace {

// Reads a value at the beginning of the bytes. Precondition: there are as many.
template <typename Value>
Value ReadAt(absl::string_view bytes, int64_t at) {
  Value value;
  ::memcpy(static_cast<void*>(&value), bytes.data() + at, sizeof(value));
  return value;
}

// Returns the part of `bytes` from `at` on, or nothing if it has not as many bytes.
std::optional<absl::string_view> Part(absl::string_view bytes, int64_t at, int64_t size) {
  const int64_t all = static_cast<int64_t>(bytes.size());
  if (at < 0 || size < 0 || at > all || size > all - at) return std::nullopt;
  return bytes.substr(static_cast<size_t>(at), static_cast<size_t>(size));
}

absl::Status NoRanks(absl::string_view why) {
  return absl::NotFoundError(absl::StrCat("the memory holds no records of acts: ", why));
}

struct KeptRun {
  TracedJob job;
  std::vector<ActRing> rings;  // by rank of the job
};

absl::Status AddRank(const proto::KeptRank& kept, absl::string_view rings, const TickScale& scale,
                     KeptRun* run) {
  TracedRank rank = RankOfFacts(kept.facts());
  rank.device = kept.device();
  rank.scale = scale;
  const auto text = [&kept](uint32_t index) {
    const int at = static_cast<int>(index);
    return at < kept.facts().text_size() ? kept.facts().text(at) : std::string();
  };
  for (const RegisterId id : rank.registers.ids()) {
    if (id.value() >= kept.token_holder_text_size() || id.value() >= kept.slot_holder_text_size())
      return NoRanks("a register has no holders");
    rank.registers[id].token_holder = text(kept.token_holder_text(id.value()));
    rank.registers[id].slot_holder = text(kept.slot_holder_text(id.value()));
  }
  const int64_t capacity = kept.ring_capacity();
  if (capacity == 0) {
    run->rings.emplace_back(0);
  } else {
    if (capacity < 0 || capacity > kKeptBytesMax ||
        !std::has_single_bit(static_cast<uint64_t>(capacity))) {
      return NoRanks("a ring has an impossible size");
    }
    const std::optional<absl::string_view> ring =
        Part(rings, kept.ring_at(), static_cast<int64_t>(ActRing::BytesOf(capacity)));
    if (!ring.has_value()) return NoRanks("a ring is not whole");
    run->rings.push_back(CopyRing(*ring, capacity, rank));
  }
  run->job.ranks.push_back(std::move(rank));
  return absl::OkStatus();
}

absl::StatusOr<KeptRun> ReadKept(absl::string_view memory) {
  if (!Part(memory, 0, kPageBytes).has_value()) return NoRanks("it is empty");
  const auto head = ReadAt<KeptHead>(memory, 0);
  if (head.magic != kMagic || head.record_bytes != sizeof(ActRecord) || head.region_at == 0 ||
      !Part(memory, head.region_at, kAlignment).has_value()) {
    return NoRanks("no ranks were loaded");
  }
  const absl::string_view region = memory.substr(static_cast<size_t>(head.region_at));
  const auto region_head = ReadAt<RegionHead>(region, 0);
  const std::optional<absl::string_view> facts = Part(region, kAlignment, region_head.facts_bytes);
  proto::KeptJob kept;
  if (!facts.has_value() || Crc32c(facts->data(), facts->size()) != region_head.facts_crc ||
      !kept.ParseFromArray(facts->data(), static_cast<int>(facts->size()))) {
    return NoRanks("the facts of the ranks are damaged");
  }
  const std::optional<absl::string_view> rings =
      Part(region, RingsAt(region_head), region_head.rings_bytes);
  if (!rings.has_value()) return NoRanks("the rings are not whole");
  KeptRun run;
  run.job.plan_id = kept.plan_id();
  run.job.num_ranks = kept.num_ranks();
  run.job.num_stages = kept.num_stages();
  run.job.micro_batches = kept.micro_batches();
  run.job.schedule = kept.schedule();
  run.job.predicted_bubble = kept.predicted_bubble();
  run.job.first_step = kept.first_step();
  run.job.virtual_stages = kept.virtual_stages();
  run.job.stages_in_a_row = kept.stages_in_a_row();
  const TickScale scale = TickScale::Between(head.first, head.last[head.last_whole & 1]);
  for (const proto::KeptRank& rank : kept.rank())
    WEIR_RETURN_IF_ERROR(AddRank(rank, *rings, scale, &run));
  if (run.job.ranks.empty()) return NoRanks("no ranks were loaded");
  run.job.describing_rank = run.job.ranks.front().rank;
  return run;
}

}  // namespace

absl::StatusOr<std::string> TraceOfKept(absl::string_view memory) {
  WEIR_ASSIGN_OR_RETURN(KeptRun run, ReadKept(memory));
  for (size_t i = 0; i < run.rings.size(); ++i) run.job.ranks[i].acts = &run.rings[i];
  std::ostringstream trace;
  WEIR_RETURN_IF_ERROR(WriteTrace(run.job, TraceBeginNs(run.job), trace));
  return std::move(trace).str();
}

}  // namespace weir::trace
