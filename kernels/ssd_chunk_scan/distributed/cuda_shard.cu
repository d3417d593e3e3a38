// Shards of ssd_chunk_scan_fwd on a GPU: ranges of steps by the kernels of one device, a batch at a time, since a
// range of several is not without gaps; states without outputs by walk.cuh.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/common/index_math.h"
#include "kernels/distributed/passing_registrations.h"
#include "kernels/distributed/state_passing.h"
#include "kernels/distributed/workspace_parts.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/distributed/cuda_shard.h"
#include "kernels/ssd_chunk_scan/distributed/cuda_states.h"
#include "kernels/ssd_chunk_scan/distributed/host_shard.h"
#include "kernels/ssd_chunk_scan/hopper/halves.h"

namespace ssmbench::cuda_ssd_shards {
namespace {

/// Some steps of a batch of the part, as a problem of its own.
Problem range_problem(const Problem& part, std::int64_t steps, bool entered) {
  return part.with(
      {{"batch", std::int64_t{1}}, {"seqlen", steps}, {"initial_states", entered}, {"final_states", true}});
}

/// Where everything of a shard lies.
struct ShardRoom {
  float* states;
  std::int32_t* numbers;  ///< of all batches; ranges take those of one
  float* scan;            ///< of ranges, or of halves
  std::int64_t floats;

  ShardRoom(const Problem& part, float* workspace) {
    const SsdChunkScan scan_of_part(part);
    WorkspaceParts parts(workspace);
    states = parts.take(states_floats(part));
    numbers = reinterpret_cast<std::int32_t*>(
        parts.take(scan_of_part.has_seq_idx ? scan_of_part.batch * scan_of_part.seqlen : 0));
    std::size_t bytes = bytes_for(part, scan_of_part.seqlen);
    if (ssd_hopper::has_halves(part)) bytes = std::max(bytes, ssd_hopper::halves_bytes(part));
    std::int64_t begin = 0;
    for (const std::int64_t stop : cuda_stops(scan_of_part.seqlen)) {
      bytes = std::max(bytes, bytes_for(part, stop - begin));
      begin = stop;
    }
    scan = parts.take(ceil_div(static_cast<std::int64_t>(bytes), std::int64_t{sizeof(float)}));
    floats = parts.floats();
  }

 private:
  static std::size_t bytes_for(const Problem& part, std::int64_t steps) {
    std::size_t bytes = 0;
    for (const bool entered : {false, true}) {
      const Problem range = range_problem(part, steps, entered);
      bytes = std::max(bytes, cuda_ranks().implementation(range)->workspace_bytes(range));
    }
    return bytes;
  }
};

class CudaSsdShard : public StatesShard {
 public:
  CudaSsdShard(const Problem& part, const SsdArgs& args, const TensorSet& tensors, float* workspace)
      : StatesShard(part, args.in, args.final_floats(), ShardRoom(part, workspace).states),
        tensors_(tensors),
        room_(part, workspace) {
    if (!ssd_hopper::has_halves(part)) return;
    SsdArgs of_halves = args;
    if (args.in.seq_idx != nullptr) of_halves.in.seq_idx = room_.numbers;
    halves_ = ssd_hopper::halves(part, of_halves, room_.scan);
  }

  void run_first(const float* entering, float* leaving, void* stream) override {
    if (halves_ == nullptr) return StatesShard::run_first(entering, leaving, stream);
    const SsdInputs& in = inputs();
    for (std::int64_t b = 0; in.seq_idx != nullptr && b < in.batch; ++b)
      rebase_numbers(in.seq_idx + b * in.seqlen, 0, in.seqlen, room_.numbers + b * in.seqlen, stream);
    halves_->states(entering, leaving, static_cast<cudaStream_t>(stream));
  }

  void run_second(const float* entering, float* leaving, void* stream) override {
    if (halves_ == nullptr) return StatesShard::run_second(entering, leaving, stream);
    halves_->outputs(entering, leaving, static_cast<cudaStream_t>(stream));
  }

  void run(IndexRange range, const float* entering, float* leaving, bool outputs, void* stream) override {
    if (!outputs) return StatesShard::run(range, entering, leaving, false, stream);
    const auto [place, is_new] = launches_.try_emplace({range.begin, range.end, entering, leaving});
    if (is_new)
      for (std::int64_t b = 0; b < inputs().batch; ++b)
        place->second.push_back(bind_batch(b, range, entering, leaving));
    for (const Launch& launch : place->second) launch(stream);
  }

 private:
  Launch bind_batch(std::int64_t b, IndexRange range, const float* entering, float* leaving) const {
    const Problem problem = range_problem(part(), range.count(), entering != nullptr);
    const std::int64_t state = b * sizes().state_floats / inputs().batch;
    TensorSet tensors;
    for (const auto& spec : problem.tensors()) {
      void* data = nullptr;
      if (spec.name == "initial_states")
        data = const_cast<float*>(entering) + state;
      else if (spec.name == "final_states")
        data = leaving + state;
      else if (spec.name == "seq_idx")
        data = room_.numbers;
      else
        data = of_batch(tensors_.at(spec.name), spec, b, range.begin);
      tensors.add(spec.name, TensorView(data, spec));
    }
    const Launch scan = cuda_ranks().implementation(problem)->bind(problem, tensors, room_.scan);
    if (inputs().seq_idx == nullptr) return scan;
    return [=, numbers = inputs().seq_idx + b * inputs().seqlen, to = room_.numbers](void* stream) {
      rebase_numbers(numbers, range.begin, range.count(), to, stream);
      scan(stream);
    };
  }

  /// The first element of a batch from a step on.
  static void* of_batch(const TensorView& all, const TensorSpec& spec, std::int64_t b, std::int64_t step) {
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < all.strides.size(); ++axis) {
      if (spec.axes[axis] == 'b') offset += b * all.strides[axis];
      if (spec.axes[axis] == 'l') offset += step * all.strides[axis];
    }
    return static_cast<std::byte*>(all.data) + offset * static_cast<std::int64_t>(size_of(all.dtype));
  }

  TensorSet tensors_;
  ShardRoom room_;
  std::unique_ptr<ssd_hopper::Halves> halves_;  ///< null: cuda-hopper does not do the shard
  /// By first step, end, and the states that enter and leave: bound once, launched many times; of each batch.
  std::map<std::tuple<std::int64_t, std::int64_t, const float*, float*>, std::vector<Launch>> launches_;
};

std::optional<std::string> unsupported(const Problem& whole) {
  if (auto reason = ssd_shards::unsupported(whole)) return reason;
  return cannot_compute(cuda_ranks(), whole);
}

}  // namespace

std::size_t shard_bytes(const Problem& part) {
  return static_cast<std::size_t>(ShardRoom(part, nullptr).floats) * sizeof(float);
}

std::unique_ptr<LocalScan> shard(const Problem& part, const TensorSet& tensors, void* workspace) {
  return std::make_unique<CudaSsdShard>(part, bind_ssd(part, tensors), tensors,
                                        static_cast<float*>(workspace));
}

namespace {

const PassingRegistrations registrations(cuda_ranks(), {.op = "ssd_chunk_scan_fwd",
                                                        .last_state = "final_states",
                                                        .unsupported = unsupported,
                                                        .sizes = ssd_shards::sizes,
                                                        .shard_bytes = shard_bytes,
                                                        .shard = shard,
                                                        .stops = cuda_stops});

}  // namespace
}  // namespace ssmbench::cuda_ssd_shards
