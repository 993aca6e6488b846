// The main() of a fuzz target outside --config=fuzz. It replays the kept inputs and then a bounded
// number of seeded mutations of them, so that every test run exercises every target. It does not
// look at coverage; clang's libFuzzer does.
//
// Usage: target [--mutations=N] [--seed=N] FILE...   (WEIR_FUZZ_SEED in the environment also sets
// the seed)
// Single-threaded. A failure is a crash or an abort of the target. The seed and the round are
// printed first.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kInputBytesMax = 1 << 16;

using Bytes = std::vector<uint8_t>;

void RunOne(const Bytes& input) {
  // The copy has the exact size, so that AddressSanitizer sees a read past the end.
  Bytes exact(input.begin(), input.end());
  exact.shrink_to_fit();
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

Bytes ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "cannot read the input %s\n", path.c_str());
    std::exit(2);
  }
  return Bytes(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// Makes one small change: flips a bit, sets a critical byte, deletes or repeats a stretch, cuts, or
// splices with another input.
void Mutate(const std::vector<Bytes>& corpus, std::mt19937_64& random, Bytes& input) {
  const auto below = [&random](size_t bound) { return static_cast<size_t>(random() % bound); };
  if (input.empty()) input.push_back(static_cast<uint8_t>(random()));
  const size_t at = below(input.size());
  const size_t length = 1 + below(std::min<size_t>(input.size() - at, 16));
  static constexpr uint8_t kTelling[] = {0x00, 0x01, 0x7f, 0x80, 0xff, '-', '0', '9', '{', '}'};
  switch (below(6)) {
    case 0: input[at] ^= static_cast<uint8_t>(1u << below(8)); break;
    case 1: input[at] = kTelling[below(std::size(kTelling))]; break;
    case 2: input.erase(input.begin() + at, input.begin() + at + length); break;
    case 3: {
      const Bytes stretch(input.begin() + at, input.begin() + at + length);
      input.insert(input.begin() + at, stretch.begin(), stretch.end());
      break;
    }
    case 4: input.resize(at); break;
    default: {
      const Bytes& other = corpus[below(corpus.size())];
      if (other.empty()) break;
      const size_t from = below(other.size());
      input.resize(at);
      input.insert(input.end(), other.begin() + from, other.end());
      break;
    }
  }
  if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t seed = 1;
  uint64_t num_mutations = 2000;
  if (const char* text = std::getenv("WEIR_FUZZ_SEED")) seed = std::strtoull(text, nullptr, 10);
  std::vector<Bytes> corpus;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--mutations=", 0) == 0) {
      num_mutations = std::strtoull(argument.c_str() + 12, nullptr, 10);
    } else if (argument.rfind("--seed=", 0) == 0) {
      seed = std::strtoull(argument.c_str() + 7, nullptr, 10);
    } else {
      corpus.push_back(ReadFile(argument));
    }
  }
  const size_t num_files = corpus.size();
  corpus.emplace_back();
  std::fprintf(stderr, "replaying %zu inputs, then %llu mutations with --seed=%llu\n", num_files,
               static_cast<unsigned long long>(num_mutations),
               static_cast<unsigned long long>(seed));
  for (const Bytes& input : corpus) RunOne(input);
  std::mt19937_64 random(seed);
  for (uint64_t round = 0; round < num_mutations; ++round) {
    Bytes input = corpus[random() % corpus.size()];
    const uint64_t num_changes = 1 + random() % 4;
    for (uint64_t change = 0; change < num_changes; ++change) Mutate(corpus, random, input);
    RunOne(input);
  }
  std::fprintf(stderr, "done\n");
  return 0;
}
