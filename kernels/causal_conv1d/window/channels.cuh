#pragma once

#include "kernels/causal_conv1d/window/elements.cuh"
#include "kernels/causal_conv1d/window/map.h"
#include "kernels/causal_conv1d/window/options.h"
#include "kernels/common/mma.cuh"

// Where channels are last: a thread's run of steps, its loads on the way, and the steps that a filter reaches
// back in registers.
//
// Steps are done in rounds of kReach, so that registers of a window are a ring whose positions are known when
// the code is compiled: step u of a round takes the place of the step kReach before.

namespace ssmbench::window {

/// A thread's channels and steps in the tensors of layout bld.
template <class Io, int kChannels, class Choice>
struct ChannelRun {
  static constexpr int kVectorBytes = kChannels * static_cast<int>(sizeof(Io));

  const ConvInputs1d& in;
  Choice options;
  ChannelPosition at;
  int steps, left;        ///< of the run, and of the sequence from its first one on, at most a filter more
  int shortest, longest;  ///< steps of the warp's runs; of the run where it is plain
  int valid, stored;      ///< channels, and those that the thread stores
  bool copies;            ///< channels of the thread or of the one before
  bool copies_next;       ///< the next thread's vector, too
  bool is_near_end;       ///< vectors may end behind the tensors

  __device__ ChannelRun(const ConvInputs1d& inputs, Choice chosen, const ChannelPlan& plan)
      : in(inputs), options(chosen), at(channel_position(plan, blockIdx.x, static_cast<int>(threadIdx.x))) {
    const bool is_there = at.batch < in.batch && at.channel >= 0;
    steps = at.batch < in.batch ? valid_of(at.step, plan.steps, in.seqlen) : 0;
    left = at.batch < in.batch ? valid_of(at.step, plan.steps + kMostTaps, in.seqlen) : 0;
    valid = is_there ? valid_of(at.channel, kChannels, in.dim) : 0;
    stored = at.group < plan.shared_groups ? 0 : valid;
    copies = is_there && at.channel < in.dim + kChannels;
    copies_next = at.group == plan.groups() - 1;
    is_near_end = may_pass_end(at, kChannels, at.step + left - 1, in.batch, in.seqlen, in.dim);
    shortest = longest = steps;
    if constexpr (!Choice::kIsPlain) {
      for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
        shortest = min(shortest, __shfl_xor_sync(kAllLanes, shortest, distance));
        longest = max(longest, __shfl_xor_sync(kAllLanes, longest, distance));
      }
    }
  }

  /// In runs that are not plain threads without steps or channels take part in shuffles.
  __device__ bool is_empty() const { return Choice::kIsPlain && (steps == 0 || valid == 0); }
  __device__ int channels() const { return Choice::kIsPlain ? kChannels : valid; }
  __device__ bool is_first() const { return at.step == 0; }
  __device__ bool is_last() const { return at.step + steps == in.seqlen; }
  /// Of the run's step t, like all that follows.
  __device__ std::int64_t offset(int t) const {
    return (at.batch * in.seqlen + at.step + t) * in.dim + at.channel;
  }
  __device__ int number(int t) const { return steps > 0 ? options.number(in, at.batch, at.step + t) : 0; }
  /// Those of the steps from t on.
  template <int kCount>
  __device__ void load_numbers(int t, int (&to)[kCount]) const {
#pragma unroll
    for (int u = 0; u < kCount; ++u) to[u] = number(t + u);
  }
  __device__ std::int64_t state_offset(int c) const {
    return (at.batch * in.dim + at.channel + c) * in.taps();
  }

  /// x̃ of a step before the run or at its end.
  __device__ void load_step(int t, float (&to)[kChannels]) const {
    if (at.step + t >= 0)
      return unpack(load_packed<Io, kChannels>(options.by_vectors(), static_cast<const Io*>(in.x) + offset(t),
                                               1, channels()),
                    to);
    const int i = t + in.taps();  // the run is the first
    const auto* states = static_cast<const Io*>(in.initial_states);
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      to[c] = states != nullptr && i >= 0 && c < channels() ? to_float(states[state_offset(c) + i]) : 0.0F;
  }

  /// How many elements past a vector's start `row` is.
  __device__ static int shift_of(const Io* row) {
    return window::shift_of<Io, kChannels>(row);
  }
  __device__ void synchronize() const {
    if constexpr (!Choice::kIsPlain) __syncwarp();
  }

  /// The thread's channels of a step, `to` being where they go, if the step is there.
  __device__ void store(Io* to, const float (&from)[kChannels], bool is_there) const {
    if (options.by_vectors()) {
      if (is_there) store_floats(true, to, 1, channels(), from);
    } else {
      const Neighbours among{at.channel == 0, in.dim - at.channel >= 2 * kChannels};
      store_unaligned<Io, kChannels, kChannels>(among, to, from, is_there ? stored : 0);
    }
  }
};

/// A run's kTensors on the way from memory: a ring of slots in shared memory, one step each. A thread reads
/// its own vector, and where rows do not start at one the next thread's, too.
template <class Io, int kChannels, class Choice, int kReach, int kTensors>
struct StepRing {
  using Run = ChannelRun<Io, kChannels, Choice>;
  static constexpr int kVectorBytes = Run::kVectorBytes;
  static constexpr int kRounds = kRoundsAhead;
  static constexpr int kSlots = kRounds * kReach;

  std::uint32_t round;  ///< address of the thread's vector in the first slot of the round
  std::uint32_t end;
  int tensor_bytes;

  /// Vectors of a tensor and step: those of a run that is not plain end with one more.
  SSMBENCH_HD static int vectors(const ChannelPlan& plan) {
    return kChannelThreads + (Choice::kIsPlain ? 0 : plan.runs());
  }
  static int bytes(const ChannelPlan& plan) { return kSlots * kTensors * vectors(plan) * kVectorBytes; }

  __device__ StepRing(void* memory, const ChannelPlan& plan, const Run& run)
      : tensor_bytes(vectors(plan) * kVectorBytes) {
    const int vector = static_cast<int>(threadIdx.x) + (Choice::kIsPlain ? 0 : run.at.run);
    round = shared_address(memory) + vector * kVectorBytes;
    end = round + kSlots * slot_bytes();
  }

  __device__ int slot_bytes() const {
    return kTensors * (Choice::kIsPlain ? kChannelThreads * kVectorBytes : tensor_bytes);
  }
  __device__ std::uint32_t at(int step, int tensor) const {
    return round + step * slot_bytes() + tensor * (slot_bytes() / kTensors);
  }
  /// Starts to copy the thread's channels of a step; end_of_tensor: behind the last element of all.
  __device__ void copy(const Run& run, int step, int tensor, const Io* from, bool is_there,
                       const Io* end_of_tensor) const {
    if (run.options.by_vectors()) {
      copy_elements<Io, kChannels>(at(step, tensor), from, is_there && run.channels() > 0 ? kChannels : 0);
    } else {
      const bool reads = is_there && run.copies;
      from -= Run::shift_of(from);
      if (run.is_near_end) {
        const int first = reads ? first_of(from, end_of_tensor) : 0;
        const int second = reads ? first_of(from + kChannels, end_of_tensor) : 0;
        copy_elements<Io, kChannels>(at(step, tensor), from, first);
        if (run.copies_next)
          copy_elements<Io, kChannels>(at(step, tensor) + kVectorBytes, from + kChannels, second);
      } else {
        const int count = reads ? kChannels : 0;
        copy_elements<Io, kChannels>(at(step, tensor), from, count);
        if (run.copies_next)
          copy_elements<Io, kChannels>(at(step, tensor) + kVectorBytes, from + kChannels, count);
      }
    }
  }
  /// How many elements of a vector are before `end`.
  __device__ static int first_of(const Io* vector, const Io* end) {
    return static_cast<int>(max(std::int64_t{0}, min(end - vector, std::int64_t{kChannels})));
  }
  /// `row` is where the channels were copied from, or any address as much past a vector's start.
  __device__ Packed<Io, kChannels> read(const Run& run, int step, int tensor, const Io* row) const {
    Packed<Io, kChannels> own, next;
    load_shared(own.words, at(step, tensor));
    if (run.options.by_vectors()) {
      return own;
    } else {
      load_shared(next.words, at(step, tensor) + kVectorBytes);
      Packed<Io, 2 * kChannels> both;
#pragma unroll
      for (int i = 0; i < own.kWords; ++i) {
        both.words[i] = own.words[i];
        both.words[own.kWords + i] = next.words[i];
      }
      return shifted<Io, kChannels, kChannels>(both, Run::shift_of(row));
    }
  }
  __device__ void advance() {
    round += kReach * slot_bytes();
    if (round == end) round -= kSlots * slot_bytes();
  }
};

/// x̃ of the last kReach steps and their sequences' numbers: that of step u of a round is at u.
template <int kReach, int kChannels>
struct StepWindow {
  float x[kReach][kChannels];
  int number[kReach];

  /// The steps before the run's first.
  template <class Run>
  __device__ explicit StepWindow(const Run& run) {
#pragma unroll
    for (int u = 1; u < kReach; ++u) {
      run.load_step(u - kReach, x[u]);
      number[u] = run.number(u - kReach);
    }
  }

  /// s of step u, the newest.
  template <class Choice>
  __device__ void convolve(const Filter<kReach, kChannels>& filter, int u, float (&s)[kChannels]) const {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) s[c] = filter.bias[c];
#pragma unroll
    for (int j = 0; j < kReach; ++j) {
      const int step = (u + 1 + j) % kReach;
      const bool counts = Choice::has(filter, j) && (!Choice::kHasNumbers || number[step] == number[u]);
#pragma unroll
      for (int c = 0; c < kChannels; ++c)  // predicated, not a branch
        s[c] = j == kReach - 1 || counts ? fmaf(filter.weight[j][c], x[step][c], s[c]) : s[c];
    }
  }
};

}  // namespace ssmbench::window
