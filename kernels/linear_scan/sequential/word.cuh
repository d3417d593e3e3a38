#pragma once

#include "kernels/common/io_types.cuh"

// The four bytes of a step that a lane of cuda-sequential scans.

namespace ssmbench {

/// The channels of a lane in one step.
template <class Io>
struct alignas(4) Word {
  static constexpr int kChannels = 4 / sizeof(Io);
  Io at[kChannels];
};

/// A word in f32.
__device__ inline void convert(const Word<float>& word, float (&to)[1]) {
  to[0] = word.at[0];
}
template <class Io>
__device__ void convert(const Word<Io>& word, float (&to)[2]) {
  const float2 two = unpack_pair<Io>(reinterpret_cast<const unsigned&>(word));
  to[0] = two.x;
  to[1] = two.y;
}

__device__ inline void store(Word<float>& to, const float (&values)[1]) {
  to.at[0] = values[0];
}
template <class Io>
__device__ void store(Word<Io>& to, const float (&values)[2]) {
  reinterpret_cast<unsigned&>(to) = pack_pair<Io>(values[0], values[1]);
}

/// h after each of `kSteps` steps in place of a; steps lie `kPitch` words apart. Sixteen steps are read
/// before the first of them is written: all reads are in flight together.
template <int kSteps, int kPitch, class Io>
__device__ void scan_words(Word<Io>* a, const Word<Io>* b, float (&h)[Word<Io>::kChannels]) {
  constexpr int kTogether = 16;
  static_assert(kSteps % kTogether == 0);
#pragma unroll
  for (int first = 0; first < kSteps; first += kTogether) {
    float decay[kTogether][Word<Io>::kChannels];
    float value[kTogether][Word<Io>::kChannels];
#pragma unroll
    for (int step = 0; step < kTogether; ++step) {
      convert(a[(first + step) * kPitch], decay[step]);
      convert(b[(first + step) * kPitch], value[step]);
    }
#pragma unroll
    for (int step = 0; step < kTogether; ++step) {
#pragma unroll
      for (int k = 0; k < Word<Io>::kChannels; ++k) h[k] = decay[step][k] * h[k] + value[step][k];
      store(a[(first + step) * kPitch], h);
    }
  }
}

}  // namespace ssmbench
