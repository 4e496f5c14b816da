// Deterministic random numbers addressed by counter: any rank can draw any element of any
// tensor without drawing the ones before it, and every machine draws the same bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

namespace canzona {

/// One round of SplitMix64 (Steele, Lea, Flood 2014).
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// A stream key from a list of counters (seed, step, rank, parameter, …).
constexpr std::uint64_t random_key(std::initializer_list<std::uint64_t> counters) {
  std::uint64_t key = 0;
  for (const std::uint64_t counter : counters) key = mix_bits(key ^ mix_bits(counter));
  return key;
}

/// Element `index` of the stream `key`: 64 random bits.
constexpr std::uint64_t random_bits(std::uint64_t key, std::int64_t index) {
  return mix_bits(key + static_cast<std::uint64_t>(index) * 0xd1342543de82ef95ULL);
}

/// Element `index` of the stream `key`: mean 0, variance 1, bell-shaped. The sum of four 16-bit
/// uniforms (Irwin–Hall) from one hash; needs no libm, so it is exact everywhere.
inline double random_normal(std::uint64_t key, std::int64_t index) {
  const std::uint64_t bits = random_bits(key, index);
  double sum = 0;
  for (int part = 0; part < 4; ++part) sum += (static_cast<double>((bits >> (16 * part)) & 0xffff) + 0.5) / 65536.0;
  return (sum - 2.0) * 1.7320508075688772;  // variance of the sum is 4/12
}

}  // namespace canzona
