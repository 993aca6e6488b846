// Counter-based randomness: a number is a pure function of (key, counter), so a number is the same
// on every rank and in any order of drawing. The key is made of (job seed, instance, op, step), and
// the counter is the *global* element, never a rank or a thread.
//
// The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). Thread rule: pure functions.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "runtime/base/host_and_device.h"

namespace weir {

// Mixes two words into one (SplitMix64's finaliser over their combination).
constexpr uint64_t MixKey(uint64_t a, uint64_t b) {
  uint64_t z = a + 0x9e3779b97f4a7c15ull * (b + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Writes four independent 32-bit words for (key, counter).
WEIR_HOST_AND_DEVICE inline void WriteRandomBits(uint64_t key, uint64_t counter, uint32_t* words) {
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32), c2 = 0,
           c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

// Returns the words of WriteRandomBits.
inline std::array<uint32_t, 4> RandomBits(uint64_t key, uint64_t counter) {
  std::array<uint32_t, 4> words;
  WriteRandomBits(key, counter, words.data());
  return words;
}

// Returns a uniform number in [0, 1) with 24 bits.
inline float ToUniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// Returns element `i` of a stream of uniforms: word i mod 4 of counter i / 4.
inline float UniformAt(uint64_t key, uint64_t i) {
  return ToUniform(RandomBits(key, i >> 2)[i & 3]);
}

// Returns ln((bits + 1) / 2^32), within 1e-10 relative. The logarithm and the cosine below use
// nothing of a mathematics library, so every machine gives the same bits, and a loop over them
// needs no calls.
inline double LogOfShare(uint32_t bits) {
  const double x = static_cast<double>(bits) + 1;
  // x = mantissa * 2^exponent, and sqrt(1/2) <= mantissa < sqrt(2).
  constexpr uint64_t kSqrtOfHalf = 0x3FE6A09E00000000u, kMantissa = 0x000FFFFFFFFFFFFFu;
  const uint64_t above = std::bit_cast<uint64_t>(x) - kSqrtOfHalf;
  const int32_t exponent = static_cast<int32_t>(above >> 52);
  const double mantissa = std::bit_cast<double>((above & kMantissa) + kSqrtOfHalf);
  // ln(m) = 2 atanh(s) with s = (m - 1) / (m + 1), as a series.
  const double s = (mantissa - 1) / (mantissa + 1), q = s * s;
  const double rest =
      q *
      (2.0 / 3 + q * (2.0 / 5 + q * (2.0 / 7 + q * (2.0 / 9 + q * (2.0 / 11 + q * (2.0 / 13))))));
  return static_cast<double>(exponent - 32) * 0.69314718055994530942 + (2 * s + s * rest);
}

// Returns cos(2 pi bits / 2^32), within 1e-10.
inline double CosOfTurn(uint32_t bits) {
  // The angle is `quarter` quarters of a turn and a rest of at most an eighth of a turn.
  const uint32_t quarter = (bits + 0x20000000u) >> 30;
  const double rest = static_cast<double>(static_cast<int32_t>(bits - (quarter << 30))) *
                      (6.283185307179586 * 0x1p-32);
  const double q = rest * rest;
  const double cosine =
      1 + q * (-1.0 / 2 +
               q * (1.0 / 24 + q * (-1.0 / 720 + q * (1.0 / 40320 + q * (-1.0 / 3628800 +
                                                                         q * (1.0 / 479001600))))));
  const double sine =
      rest + rest * q *
                 (-1.0 / 6 +
                  q * (1.0 / 120 + q * (-1.0 / 5040 + q * (1.0 / 362880 + q * (-1.0 / 39916800)))));
  const double value = (quarter & 1) != 0 ? sine : cosine;
  return ((quarter + 1) & 2) != 0 ? -value : value;
}

// Returns a standard normal made of two words (Box and Muller's transform).
inline float NormalFrom(uint32_t length, uint32_t turn) {
  return static_cast<float>(std::sqrt(-2.0 * LogOfShare(length)) * CosOfTurn(turn));
}

// Returns element `i` of a stream of standard normals: pair i mod 2 of the words of counter i / 2.
inline float NormalAt(uint64_t key, uint64_t i) {
  const std::array<uint32_t, 4> words = RandomBits(key, i >> 1);
  return (i & 1) == 0 ? NormalFrom(words[0], words[1]) : NormalFrom(words[2], words[3]);
}

// Returns a key made from text (FNV-1a), for parameter and op names.
constexpr uint64_t KeyOf(const char* text, uint64_t length) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (uint64_t i = 0; i < length; ++i)
    h = (h ^ static_cast<unsigned char>(text[i])) * 0x100000001b3ull;
  return h;
}

}  // namespace weir
